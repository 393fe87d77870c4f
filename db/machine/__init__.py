"""Nodes, processors, sides and login processors of the machine, and their states."""
