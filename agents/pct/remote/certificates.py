"""Replaces a node's certificates and keys while it runs (``mesh trust rotate``): all of them or none."""

from __future__ import annotations

import os

from agents.link.trust import Trust
from agents.pct.errors import PctError
from agents.wire import keys
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict

#: Keys first, so that a process that sees a new certificate finds its key.
NAMES = ("launch.key", "beat.key", "ca.pem", "node.pem")


class BadFiles(PctError):
    """Unusable certificates or keys: the node keeps the old ones."""

    code = "invalid"


def renew(directory: str, mesh: str, files: Dict[str, Any]) -> None:
    """Replace the files in ``directory`` by ``files`` (texts, by name); their users read them again. Raises
    BadFiles."""
    if set(files) != set(NAMES) or not all(isinstance(text, str) for text in files.values()):
        raise BadFiles(f"a node has {', '.join(NAMES)}, and all of them must be replaced together")
    made = []
    try:
        for name in NAMES:
            made.append(_write(os.path.join(directory, name + ".new"), files[name].encode("utf-8", "replace")))
        _try(directory, mesh)
        for name in NAMES:
            os.replace(os.path.join(directory, name + ".new"), os.path.join(directory, name))
    except AgentError as error:
        raise BadFiles(error.message) from None
    except OSError as error:
        raise BadFiles(f"{error.filename or directory}: {error.strerror}") from None
    finally:
        for path in made:
            if os.path.exists(path):
                os.unlink(path)


def _write(path: str, content: bytes) -> str:
    try:
        os.unlink(path)  # left by a process that died in between
    except FileNotFoundError:
        pass
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    return path


def _try(directory: str, mesh: str) -> None:
    for name in ("launch.key", "beat.key"):
        keys.read(os.path.join(directory, name + ".new"))
    trust = Trust(mesh, os.path.join(directory, "ca.pem.new"), os.path.join(directory, "node.pem.new"))
    trust.client()
    trust.server()
