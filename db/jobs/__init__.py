"""What the system database knows of jobs: where their state objects are, and nothing of what is in them."""
