"""The settings of a mesh, and ``keeper.json``, in which ``mesh up`` hands them to the daemons.

* ``record.py``: the class of which each group of settings and each recorded file is a subclass.
* ``groups.py``: the settings that daemons use. A group is declared once: ``console.settings.Settings``, which a command
  reads from mesh.toml, and ``KeeperFile`` both consist of these groups.
* ``keeper_file.py``: ``keeper.json``: what its writer, ``mesh up``, and its readers, the daemons, share.

Kind, default, smallest value and meaning of a setting stand in its declaration and nowhere else. The settings that
only commands use are declared in ``console/settings.py``. Agents import this package, so it needs the standard library
alone.
"""
