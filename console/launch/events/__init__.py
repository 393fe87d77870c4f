"""What a launch reports: the JSON event stream, the spool, the completion report."""
