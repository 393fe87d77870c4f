"""Numbers of things, as people write them. (The database's room has its own: yod never loads that.)"""


def counted(number: int, noun: str, plural: str = "", *, form: str = "") -> str:
    """``1 node``, ``2 nodes``; ``plural`` where it is not plain s; ``form``: of the number, as in format()."""
    return f"{number:{form}} {noun if number == 1 else plural or noun + 's'}"
