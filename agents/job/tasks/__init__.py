"""The tasks of a job, and which come after which: state machines without I/O."""
