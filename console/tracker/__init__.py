"""Finds jobs through the tracker, and queries the node that has the object."""
