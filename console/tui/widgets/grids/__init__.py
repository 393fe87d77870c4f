"""Cells with a cursor: the ranks of a launch, the tasks of a job, and what both share with the map."""
