"""Stacks of a launch: rows of the tree, two stacks side by side, source text."""
