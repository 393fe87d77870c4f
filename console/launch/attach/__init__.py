"""Observers of a running launch: attach, detach, stacks, debuggers."""
