"""Standard input, output and error of ranks, and pseudo-terminals."""
