"""Jobs wherever they are: found by the tracker, asked of the node that holds the object."""
