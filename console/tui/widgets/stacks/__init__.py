"""Merged stacks, their source lines, two of them side by side."""
