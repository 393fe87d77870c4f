"""The command ``yod``."""
