"""Connections to hosts over SSH."""
