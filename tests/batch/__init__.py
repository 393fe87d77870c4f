"""What a real batch system does to a job of ours, tried and counted: ``python -m tests.batch --times 10``.

It needs a running Slurm (``SLURM_CONF``), root, and an ordinary user who can read this directory and has a Python with
Redmesh. Each case is a job: its ranks count the signals that they get, write a checkpoint that takes 2 s, and name
their variables; afterwards neither a process nor a file of the job may be left. Results are kept by the tracker of
processes that Slurm's configuration names, and ``--write`` makes the table of docs/managers.md from all of them.

| module | subject |
|---|---|
| ``__main__.py`` | the command line |
| ``cases.py`` | the cases: what is done to a job, and what its ranks must have seen |
| ``slurm_job.py`` | one job: submitting, signals, its end, what is left of it |
| ``lost_node.py`` | a node that Slurm loses, and gets again |
| ``table.py`` | the results of all trackers, and the table in the documentation |
| ``rank.py`` | the program that the ranks run |
"""
