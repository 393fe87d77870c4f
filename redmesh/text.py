"""Format a count with its noun."""


def counted(number: int, noun: str, plural: str = "", *, form: str = "") -> str:
    """``1 node``, ``2 nodes``. ``plural`` replaces the plural with s; ``form`` is the number's format()
    specification."""
    return f"{number:{form}} {noun if number == 1 else plural or noun + 's'}"
