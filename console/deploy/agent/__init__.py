"""The agent's archive: building, compiling, upgrading."""
