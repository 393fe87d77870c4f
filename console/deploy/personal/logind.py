"""What systemd-logind does to a personal mesh at its user's last logout."""

import configparser
import glob
import os
import pwd
from typing import NamedTuple

#: The files of logind's configuration; later directories have priority.
PLACES = ("usr/lib/systemd/logind.conf", "etc/systemd/logind.conf")
DROP_INS = ("usr/lib/systemd/logind.conf.d", "run/systemd/logind.conf.d", "etc/systemd/logind.conf.d")
YES = ("1", "yes", "true", "on", "y", "t")


class Danger(NamedTuple):
    """An effect of a logout, and its remedy."""

    code: str
    message: str
    hint: str


def dangers(run: str, root: str = "/", uid: int = -1) -> list[Danger]:
    """The effects of the last logout of ``uid`` (-1: the caller) on a mesh with its sockets in ``run``."""
    uid = os.getuid() if uid < 0 else uid
    if not os.path.isdir(os.path.join(root, "run/systemd/system")):
        return []  # no systemd, so no logind
    name = _name(uid)
    if os.path.exists(os.path.join(root, "var/lib/systemd/linger", name)):
        return []
    found = []
    hint = f"loginctl enable-linger {name}"
    if run.startswith(f"/run/user/{uid}/"):
        told = (
            f"at your last logout logind removes /run/user/{uid} with the sockets of the mesh: what runs runs on,"
            " but cannot be reached before you log in again"
        )
        found.append(Danger("linger", told, hint))
    if _kills(root, name):
        told = "at your last logout logind kills your processes: the mesh and its launches (KillUserProcesses=yes)"
        found.append(Danger("logout", told, f"{hint}, and start the mesh by systemd-run --user --scope mesh up"))
    return found


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _kills(root: str, name: str) -> bool:
    files = [os.path.join(root, place) for place in PLACES]
    drop_ins = [path for folder in DROP_INS for path in glob.glob(os.path.join(glob.escape(root), folder, "*.conf"))]
    files += sorted(drop_ins, key=os.path.basename)
    kills, only, exempt = False, "", "root"
    for path in files:
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError):
            continue  # logind also ignores what it cannot read
        kills = parser.get("Login", "KillUserProcesses", fallback="yes" if kills else "no").lower() in YES
        only = parser.get("Login", "KillOnlyUsers", fallback=only)
        exempt = parser.get("Login", "KillExcludeUsers", fallback=exempt)
    return kills and name not in exempt.split() and (not only or name in only.split())
