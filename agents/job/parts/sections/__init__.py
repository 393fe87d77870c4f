"""Sections of a job on its nodes: which nodes may run them, and launches of several ranks for one section."""
