"""The command ``pingd``."""
