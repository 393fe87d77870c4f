"""Data for the screens, without widgets."""
