"""State objects of jobs on a node: received, kept, answered from, sent to another node (docs/state-object.md)."""
