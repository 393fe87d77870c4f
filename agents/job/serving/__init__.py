"""The owner gives tasks to workers, and takes their results."""
