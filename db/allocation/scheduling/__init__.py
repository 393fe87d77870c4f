"""Which requests get processors that become free: the waiting line, back-filling, and preemption."""
