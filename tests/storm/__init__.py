"""A storm: real meshes under random faults, with a model of which fault may end which launch.

``python -m tests.storm --minutes 60 --setting all`` runs the commands of the project as users do (``mesh``, ``yod``,
``showmesh``, ``pingd``) on three settings (a personal mesh on SQLite, one on MariaDB with 3 CPAs, 4 hosts over SSH),
kills, stops, fills, moves and removes what they need, and checks that

* no launch ended that no fault touched,
* no process of an ended launch is left,
* no processor was in two launches at once,
* no command hung, and none showed a traceback,
* the books of the system database agree with what runs.

| module | subject |
|---|---|
| ``__main__.py`` | the command line; runs the storm in namespaces of its own |
| ``engine.py`` | the storm: starts launches, strikes faults, checks |
| ``faults.py`` | the table of faults: what each touches, what it may end, how it heals |
| ``settings.py`` | the three settings |
| ``launches.py`` | what a launch has done so far, from the files that its ranks write |
| ``commands.py`` | commands with deadlines |
| ``journal.py`` | the log of faults and launches, the violations |
| ``world.py`` | processes, as /proc has them |
| ``rank.py`` | the program that the launches run |
"""
