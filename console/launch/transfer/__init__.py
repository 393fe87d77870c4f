"""Sends program images, libraries and files to the nodes, and serves files to ranks."""
