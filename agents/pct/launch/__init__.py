"""What all parts of a launch on a node share: its load, its place in the tree, its files in RUN."""
