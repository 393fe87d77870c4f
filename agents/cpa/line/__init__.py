"""Requests that wait for processors: put in line, served, posted back."""
