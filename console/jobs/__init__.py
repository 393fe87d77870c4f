"""State objects of jobs for commands: where they are, and how long they are kept."""
