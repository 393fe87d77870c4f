"""Process management for MPI programs: PMI-1, PMI-2 and PMIx."""
