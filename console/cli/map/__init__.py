"""Text drawings of the machine."""
