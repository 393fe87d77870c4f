"""The launch child: one process for one launch on one node."""
