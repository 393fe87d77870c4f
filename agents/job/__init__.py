"""The owner of a job: the process that writes its state object."""
