"""The sources of the console's data: database, running launches, nodes, recordings."""
