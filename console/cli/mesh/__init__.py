"""The command ``mesh``: one file for each subcommand."""
