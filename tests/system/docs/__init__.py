"""Pages whose commands are run."""
