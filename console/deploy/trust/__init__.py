"""Certificates, keys and the right to be a login processor."""
