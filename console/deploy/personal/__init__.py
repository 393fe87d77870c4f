"""The personal mesh on this machine."""
