"""The processors of a job: launches of its workers, and their records."""
