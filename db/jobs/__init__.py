"""The locations of jobs' state objects in the system database. The contents of the objects are not stored here."""
