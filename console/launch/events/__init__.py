"""The reports of a launch: the JSON event stream, the spool, the completion report."""
