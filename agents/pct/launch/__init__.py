"""The launch child: one process per launch and node, which owns that launch there."""
