"""The batch systems that Redmesh can run inside: one module each (redmesh/managers.py), and ``registry``."""
