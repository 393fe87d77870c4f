"""Heartbeats of a node to its RCA, and what the node does if nobody answers."""
