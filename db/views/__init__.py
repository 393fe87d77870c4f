"""Read-only access for viewers and daemons."""
