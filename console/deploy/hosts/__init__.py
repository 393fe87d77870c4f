"""The hosts of a mesh: description, state, checks."""
