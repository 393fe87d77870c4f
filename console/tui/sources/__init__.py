"""Where the console's data come from: database, running launches, nodes, recordings."""
