"""Linux system calls that Python's standard library lacks, and the /proc file system."""
