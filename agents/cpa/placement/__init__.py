"""Placements choose processors for a request among the free ones. ``registry`` names them; every other file is one."""
