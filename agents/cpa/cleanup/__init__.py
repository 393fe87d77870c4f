"""Clean-up of lost launchers on every node, before their processors are freed."""
