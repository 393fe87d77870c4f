"""Merged stacks, their source lines, and two of them side by side."""
