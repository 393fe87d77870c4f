"""What every part of a launch on one node shares: its load, its place in the tree, its files in RUN."""
