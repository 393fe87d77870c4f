"""A mesh inside a batch system's job: the manager starts the agents, so it parents, accounts and ends every process."""
