"""The PCT daemon of one node: its socket, its launch children, its contact with the mesh."""
