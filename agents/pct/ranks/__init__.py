"""The processes of a launch on one node: fork, exec, exit."""
