"""File access for ranks: staging, and input and output served by the login processor."""
