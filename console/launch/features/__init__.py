"""Parts of the launcher engine that a plain launch does not load."""
