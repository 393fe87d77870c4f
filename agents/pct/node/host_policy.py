"""Whose meshes a host takes part in: root's file /etc/redmesh/host. No I/O but reading the file.

It is a policy, not a barrier: a user can run processes on the host anyway (docs/security.md). A file that can be
understood in no way keeps all users but root out, because root wanted to keep somebody out.
"""

from __future__ import annotations

import os
import stat

from agents.pct.errors import PctError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Optional

PATH = "/etc/redmesh/host"
KEY = "meshes_of"
MOST_BYTES = 64 << 10


class PolicyFile:
    """The text of the file (None: this user may not read it), its owner and mode. Only a file of root's that nobody
    else may write counts."""

    __slots__ = ("mode", "text", "uid")

    def __init__(self, text: Optional[str], uid: int, mode: int) -> None:
        self.text, self.uid, self.mode = text, uid, mode


class Judgement:
    """``refusal``: why a user's mesh must not use the host, ``hint``: what to do; ``warning``: why the file does not
    count. "" each if not."""

    __slots__ = ("hint", "refusal", "warning")

    def __init__(self, refusal: str = "", hint: str = "", warning: str = "") -> None:
        self.refusal, self.hint, self.warning = refusal, hint, warning


def judge(file: Optional[PolicyFile], uid: int, user: str) -> Judgement:
    """Decide whether the meshes of ``user`` may use a host with that file (None: it has none)."""
    if file is None:
        return Judgement()
    if file.uid != 0 or not stat.S_ISREG(file.mode) or file.mode & 0o022:
        return Judgement(warning=f"{PATH} does not count: it is not a file that only root may write")
    if file.text is None and uid == 0:
        return Judgement(warning=f"{PATH} cannot be read")
    if file.text is None:
        return Judgement(f"{PATH}, which says whose meshes use this host, cannot be read", f"root: chmod 644 {PATH}")
    try:
        users = read(file.text)
    except PctError as error:
        if uid == 0:
            return Judgement(warning=f"{error.message}: the meshes of all users but root are refused")
        return Judgement(error.message, f"until root corrects that line, {PATH} refuses all meshes but root's")
    if uid == 0 or user in users or str(uid) in users:
        return Judgement()
    named = ", ".join(users) or "root"
    told = f"this host takes part in meshes of {named} only, not of {user or f'uid {uid}'} ({PATH})"
    return Judgement(told, "use a mesh of theirs, leave the host out of mesh.toml, or ask root to add you to that file")


def read(text: str) -> List[str]:
    """The users that the file names. Raises PctError, which names the line, unless every line can be understood."""
    found: Optional[List[str]] = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        key, equals, value = line.partition("=")
        if not line:
            continue
        if not equals or key.strip() != KEY:
            raise PctError(f"{PATH}, line {number}: not `{KEY} = USER …`: {line[:60]!r}")
        if found is not None:
            raise PctError(f"{PATH}, line {number}: {KEY} stands there twice")
        found = value.replace(",", " ").split()
    if found is None:
        raise PctError(f"{PATH}: it has no line `{KEY} = USER …`")
    return found


def read_file(path: str = PATH) -> Optional[PolicyFile]:
    """This host's file; None if there is none, or if its directory does not let this user see whether there is one.

    console/deploy/ssh/bootstrap.py (``policy_file``) does the same on a host without an agent.
    """
    try:
        there = os.stat(path)
    except OSError:
        return None
    text = None
    if stat.S_ISREG(there.st_mode):
        try:
            with open(path, "rb") as file:
                text = file.read(MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            pass
    return PolicyFile(text, there.st_uid, there.st_mode)


def judge_here(path: str = PATH) -> Judgement:
    """Decide whether the meshes of this process's user may use this host."""
    file = read_file(path)
    if file is None:
        return Judgement()
    import pwd

    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = ""
    return judge(file, uid, user)
