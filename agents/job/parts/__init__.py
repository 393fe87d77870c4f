"""Optional parts of a job: the owner calls their hooks (``part``)."""
