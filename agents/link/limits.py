"""How many connections a daemon may have."""

import resource


def allow_many_files() -> None:
    """As many as the hard limit has: a connection for every client or node, and a login shell allows often 1,024."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        pass
