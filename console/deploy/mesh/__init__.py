"""A mesh over SSH: up, down, its plan."""
