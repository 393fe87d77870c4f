"""Jobs as commands see them: their state objects, where they are, how long they are kept."""
