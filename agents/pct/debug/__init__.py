"""Stack traces, crash reports and debuggers for the ranks of one node."""
