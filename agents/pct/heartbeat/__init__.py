"""How a node tells its RCA that it is alive, and what it does when nobody answers."""
