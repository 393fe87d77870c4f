"""A mesh inside a batch job: the manager starts the agents, so it is the parent of every process, accounts for it and
ends it."""
