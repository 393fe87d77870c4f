"""The layout of the machine map."""
