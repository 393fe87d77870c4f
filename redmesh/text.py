"""Format a count with its noun."""


def counted(number: int, noun: str, plural: str = "", *, form: str = "") -> str:
    """``1 node``, ``2 nodes``. ``plural`` replaces the plural with s; ``form`` is the number's format()
    specification."""
    return f"{number:{form}} {noun if number == 1 else plural or noun + 's'}"


def size_text(count: int) -> str:
    """``count`` bytes for people: ``512 MiB``, ``7.9 GiB``."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.3g} {unit}" if count < 1000 << shift else f"{count >> shift} {unit}"
    return f"{count} B"
