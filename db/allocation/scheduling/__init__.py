"""Who gets processors that become free: the line of waiting requests, who may pass, and who gives way."""
