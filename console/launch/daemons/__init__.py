"""Connections from yod to CPA, RCA and root PCT."""
