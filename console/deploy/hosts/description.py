"""The hosts of a mesh in ``mesh.toml``: names such as ``node[001-064]``, one table for equal hosts."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from console.errors import UsageError
from console.launch.options.lists import MOST, parse_list
from console.settings import ConfigurationError, Settings

AUTO = "auto"
ROLES = ("compute", "service", "login")
MODES = ("interactive", "batch")
#: The most processors of a host; a larger number is a typing error.
MOST_PROCESSORS = 65_536

TEXT, COUNT, PORT, COUNT_OR_AUTO, WORDS = "text", "whole number", "port", 'whole number or "auto"', "list of words"

#: All keys of a host's table: name, type, meaning. docs/deployment.md repeats it, and a test compares.
HOST_KEYS: tuple[tuple[str, str, str], ...] = (
    ("name", TEXT, "the node's name; `node[001-064]` makes 64 hosts that are alike"),
    ("address", TEXT, "what SSH connects to: an address, a name, an alias of ~/.ssh/config; default: the node's name"),
    ("port", PORT, "the port of the host's sshd; default: the one of ~/.ssh/config, else 22"),
    ("user", TEXT, "the account on the host; default: the one of ~/.ssh/config, else your user name"),
    (
        "processors",
        COUNT_OR_AUTO,
        "the number of processors of the host; auto (default): as many as the agent counts there",
    ),
    ("gpus", COUNT_OR_AUTO, "the number of GPUs of the host; auto (default): as many as the agent counts there"),
    ("role", TEXT, "compute (the default), service (in no pool, reached by `yod -service`) or login"),
    ("mode", TEXT, "whom the processors serve: interactive or batch; default: what `mesh mode` set last"),
    ("labels", WORDS, "words of your own, by which `mesh nodes`, `mesh up` and `mesh doctor` select"),
    (
        "python",
        TEXT,
        "the Python of the agent, an absolute path or a name on PATH; default: the first one found "
        "that is 3.9 or newer",
    ),
    ("agent_address", TEXT, "the address on which the agent listens; default: the one to which SSH has connected"),
    ("agent_port", PORT, "the port on which the agent listens; default: `agent_port` of the configuration"),
    (
        "cpas",
        COUNT,
        "of a login processor: the number of CPAs that it runs (needs MySQL or MariaDB); default: "
        "0, it uses the CPAs of others",
    ),
)
_KINDS = {name: kind for name, kind, _meaning in HOST_KEYS}
_RANGES = re.compile(r"\[([^\]]*)\]")
#: The characters of addresses, aliases and account names. None begins with a dash, which could be taken for an option,
#: and no character has a meaning in a shell or path.
_PLAIN = re.compile(r"[A-Za-z0-9_:.][A-Za-z0-9_:.%@+-]*\Z")
_PYTHON = re.compile(r"[A-Za-z0-9_/.~][A-Za-z0-9_/.+-]*\Z")


class Host(NamedTuple):
    """A host of the mesh, as described; 0 and "" mean unspecified, and -1 that the agent counts on the host."""

    name: str
    address: str
    port: int = 0
    user: str = ""
    processors: int = -1
    gpus: int = -1
    role: str = "compute"
    mode: str = ""
    labels: tuple[str, ...] = ()
    python: str = ""
    agent_address: str = ""
    agent_port: int = 0
    cpas: int = 0


def read_hosts(settings: Settings) -> list[Host]:
    """The hosts in the configuration, in order. Raises ConfigurationError, which names file and line."""
    if settings.allocation:
        from console.deploy.hosts.allocation import job_hosts  # few meshes belong to a job

        return [Host(node, node, processors=slots) for node, _name, slots in job_hosts(settings)]
    hosts: list[Host] = []
    taken: dict[str, str] = {}
    for number, table in enumerate(settings.host_tables):
        where = _Where(settings, number)
        for host in _hosts_of(table, where):
            if host.name in taken:
                where.refuse("name", f"{host.name!r} is described twice", f"first in {taken[host.name]}")
            taken[host.name] = where.place("name")
            hosts.append(host)
    _refuse_one_place_for_two(hosts, settings)
    return hosts


def check_table(table: Mapping[str, Any]) -> list[Host]:
    """The hosts of one table, for checks before it is written. Raises ConfigurationError."""
    return _hosts_of(table, _Where(None, 0))


class _Where:
    """The place of a table, for error messages."""

    def __init__(self, settings: Settings | None, number: int) -> None:
        self._settings, self._number = settings, number

    def place(self, key: str) -> str:
        """File and line of ``key`` in this table, as far as they can be determined."""
        if self._settings is None:
            return "this host"
        origin = self._settings.where.get("hosts", "")
        line = line_of(origin, self._number, key) if origin == self._settings.file else 0
        return f"{origin}:{line}" if line else origin

    def refuse(self, key: str, what: str, hint: str = "") -> NoReturn:
        raise ConfigurationError(f"{self.place(key)}: {what}", hint)


def line_of(path: str, table: int, key: str) -> int:
    """The line of ``key`` in the ``table``-th ``[[hosts]]`` of a file, or of the table's beginning; 0: unknown."""
    found, seen = 0, -1
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                text = line.strip()
                if re.match(r"\[\[\s*hosts\s*\]\]", text):
                    seen += 1
                    found = number if seen == table else found
                elif text.startswith("[") and seen == table:
                    return found
                elif seen == table and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*=", text):
                    return number
    except (OSError, UnicodeDecodeError):
        return 0
    return found


def _hosts_of(table: Mapping[str, Any], where: _Where) -> list[Host]:
    _check_keys(table, where)
    if "name" not in table:
        where.refuse("name", "a host without a name", 'name = "node[001-064]"')
    names = _names(table["name"], where)
    addresses = _addresses(table, names, where)
    given: dict[str, Any] = {}
    for key in ("processors", "gpus"):
        if table.get(key, AUTO) != AUTO:
            given[key] = table[key]
    for key in ("port", "user", "role", "mode", "python", "agent_port", "cpas"):
        if key in table:
            given[key] = table[key]
    _check_values(given, where)
    listens = _spread(table.get("agent_address", ""), "agent_address", names, where)
    labels = tuple(table.get("labels", ()))
    return [
        Host(name, address, labels=labels, agent_address=listen, **given)
        for name, address, listen in zip(names, addresses, listens, strict=True)
    ]


def _check_keys(table: Mapping[str, Any], where: _Where) -> None:
    for key, value in table.items():
        kind = _KINDS.get(key)
        if kind is None:
            import difflib

            close = difflib.get_close_matches(key, _KINDS, 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(_KINDS)}"
            where.refuse(key, f"no key of a host is called {key!r}", hint)
        if not _fits(kind, value):
            where.refuse(key, f"{key} must be a {kind}, not {value!r}")


def _fits(kind: str, value: Any) -> bool:
    if kind == TEXT:
        return isinstance(value, str)
    if kind == WORDS:
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    if kind == COUNT_OR_AUTO and value == AUTO:
        return True
    return isinstance(value, int) and not isinstance(value, bool)


def _check_values(given: Mapping[str, Any], where: _Where) -> None:
    for key in ("port", "agent_port"):
        if key in given and not 0 < given[key] < 65_536:
            where.refuse(key, f"{key} must be between 1 and 65535, not {given[key]}")
    if not 0 < given.get("processors", 1) <= MOST_PROCESSORS:
        where.refuse("processors", f"processors must be between 1 and {MOST_PROCESSORS}, not {given['processors']}")
    if not 0 <= given.get("gpus", 0) <= MOST_PROCESSORS:
        where.refuse("gpus", f"gpus must be between 0 and {MOST_PROCESSORS}, not {given['gpus']}")
    for key, words in (("role", ROLES), ("mode", MODES)):
        if key in given and given[key] not in words:
            where.refuse(key, f"no {key} is called {given[key]!r}", f"there are: {', '.join(words)}")
    if given.get("user") and not _PLAIN.match(given["user"]):
        where.refuse("user", f"{given['user']!r} is not an account's name")
    if given.get("python") and not _PYTHON.match(given["python"]):
        where.refuse("python", f"{given['python']!r} is no Python", "a path like /opt/python/bin/python3")


def _names(text: str, where: _Where) -> list[str]:
    try:
        listed = parse_list(text)
    except UsageError as error:
        where.refuse("name", error.message, error.hint)
    if listed["processors"] or not listed["nodes"]:
        where.refuse("name", f"{text!r} is not a host's name", "a name begins with a letter")
    names: list[str] = listed["nodes"]
    for name in names:
        if len(name) > 63 or ".." in name:
            where.refuse("name", f"{name!r} is not a host's name", "up to 63 letters, digits, dashes and single dots")
    return names


def _addresses(table: Mapping[str, Any], names: Sequence[str], where: _Where) -> list[str]:
    return _spread(table.get("address") or "{name}", "address", names, where)


def _spread(text: str, key: str, names: Sequence[str], where: _Where) -> list[str]:
    """Return one value per name: ``text`` is a pattern with as many values, or contains ``{name}``, or is one value."""
    values = expand(text)
    if values is None:
        where.refuse(key, f"{key} {text!r} is not a pattern", 'like "10.0.0.[1-64]" or "{name}.cluster"')
    for value in values:
        if value and not _PLAIN.match(value.replace("{name}", "n")):
            where.refuse(key, f"{value!r} is not an address", "an address, a name, or an alias of ~/.ssh/config")
        user, at, host = value.partition("@")
        if at and key == "address":
            where.refuse(key, f"{value!r} has an account in it", f"write address={host} user={user}")
    if len(values) == 1 and ("{name}" in text or len(names) == 1 or not text):
        return [values[0].replace("{name}", name) for name in names]
    if len(values) != len(names):
        where.refuse(key, f"{key} makes {len(values)} of {text!r}, name makes {len(names)} hosts")
    return values


def expand(text: str) -> list[str] | None:
    """Expand a pattern such as ``10.[0-1].0.[1-64]``, the last bracket fastest; None if it is malformed."""
    choices: list[list[str]] = []
    count = 1
    for at, part in enumerate(_RANGES.split(text)):
        if at % 2 == 0:
            choices.append([part])
            continue
        numbers: list[str] = []
        for run in part.split(","):
            first, dash, last = run.partition("-")
            last = last if dash else first
            if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()) or len(last) > 9:
                return None
            if not int(first) <= int(last) < int(first) + MOST:
                return None
            numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
        choices.append(numbers)
        count *= len(numbers)
        if count > MOST:
            return None
    return None if "[" in _RANGES.sub("", text) else ["".join(parts) for parts in itertools.product(*choices)]


def _refuse_one_place_for_two(hosts: Sequence[Host], settings: Settings) -> None:
    taken: dict[tuple[str, int], str] = {}
    for host in hosts:
        place = (host.agent_address or host.address, host.agent_port or settings.agent_port)
        if place in taken:
            raise ConfigurationError(
                f"{settings.where['hosts']}: the agents of {taken[place]} and {host.name} would both listen at"
                f" {place[0]}, port {place[1]}",
                "give one of them another agent_port",
            )
        taken[place] = host.name


def selected(hosts: Sequence[Host], only: str, labels: Sequence[str] = ()) -> list[Host]:
    """Return the hosts that the list ``only`` names (all if it is empty) and that have all ``labels``.

    Raises UsageError.
    """
    chosen = list(hosts)
    if only:
        wanted = parse_list(only)["nodes"]
        there = {host.name for host in hosts}
        strangers = [name for name in wanted if name not in there]
        if strangers or not wanted:
            raise UsageError(
                f"the configuration describes no host {', '.join(strangers[:3]) or only}", "mesh nodes lists them"
            )
        chosen = [host for host in hosts if host.name in set(wanted)]
    return [host for host in chosen if set(labels) <= set(host.labels)]
