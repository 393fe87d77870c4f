"""A PMIx server for one launch on one machine: a process of its own, because libpmix starts threads."""
