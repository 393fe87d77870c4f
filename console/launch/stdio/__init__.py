"""Standard input and output of a launch at the terminal or in files."""
