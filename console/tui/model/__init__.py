"""What the screens show, without widgets."""
