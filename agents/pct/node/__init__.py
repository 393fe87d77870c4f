"""The PCT daemon of one node: its socket, its launch children, their deaths."""
