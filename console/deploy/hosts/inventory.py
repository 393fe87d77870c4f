"""Edits the hosts in a configuration file and keeps everything else: comments, order, blank lines.

The file stays the only source: changes in a second file would be missing from version control.
"""

import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from console.deploy.hosts.description import HOST_KEYS, Host, check_table, expand, read_hosts
from console.errors import UsageError
from console.launch.options.lists import parse_list
from console.settings import Settings, load

#: The file that ``mesh init`` writes; docs/deployment.md shows it.
EXAMPLE = """\
# The hosts of a mesh over SSH. `mesh doctor` looks at them, `mesh up` brings them up, `mesh down` leaves nothing there.
# Everything else that can be said here: docs/configuration.md. SSH itself is configured in ~/.ssh/config as ever.

# login_address = "10.0.0.254"   # this machine, as the hosts reach it; default: the address that routes to them
# agent_port = 7117              # TCP on the hosts, UDP here: a firewall has to let both through

[[hosts]]
name = "node[001-004]"           # four nodes, node001 to node004; each key below holds for all of them
# address = "10.0.0.[1-4]"       # what SSH connects to; default: the name. "{name}.cluster" puts the name in
# port = 22                      # of their sshd; default: ~/.ssh/config's
# user = "alice"                 # the account there; default: ~/.ssh/config's, else yours
# processors = 16                # default "auto": as many as the agent counts there
# gpus = 4                       # default "auto"
# role = "compute"               # or "service": in no pool, reached by yod -service
# mode = "interactive"           # or "batch"
# labels = ["bigmem"]            # words of your own, for `mesh up --label bigmem`
# python = "/opt/python/bin/python3"   # default: the first found that is 3.9 or newer
# agent_port = 7118              # where two nodes share a host
"""


def init(path: str, names: Sequence[str] = (), sizes: Mapping[str, int | None] | None = None) -> None:
    """Write the example, or a table for each pattern in ``names`` and each run of equal hosts in ``sizes``, to a new
    file.

    ``sizes``: the processors of each host; None: as many as it has. Raises UsageError if the file exists, or if a name
    is invalid; OSError.
    """
    text = EXAMPLE
    tables: list[tuple[str, int | None]] = [(name, None) for name in names]
    for size, run in itertools.groupby((sizes or {}).items(), lambda host: host[1]):
        hosts = [name for name, _ in run]
        pattern = folded(hosts)
        tables += [(name, size) for name in ([pattern] if pattern else hosts)]
    if tables:
        for name, size in tables:
            check_table({"name": name} if size is None else {"name": name, "processors": size})
        first, rest = _table(*tables[0]), tables[1:]
        text = re.sub(re.escape('name = "node[001-004]"') + "  .*", lambda _: first, text)
        text += "".join(f"\n[[hosts]]\n{_table(name, size)}\n" for name, size in rest)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise UsageError(f"{path} exists already", "mesh nodes changes the hosts in it") from None
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)


def _table(name: str, size: int | None) -> str:
    return f'name = "{name}"' + ("" if size is None else f"\nprocessors = {size}")


def add(settings: Settings, table: Mapping[str, Any]) -> list[Host]:
    """Add hosts to the file; returns them. Raises UsageError."""
    added = check_table(table)

    def change(document: Any) -> None:
        import tomlkit

        tables = _tables(document)
        entry = tomlkit.table()
        for key, value in table.items():
            entry.add(key, value)
        tables.append(entry)

    _rewrite(settings, change)
    return added


def remove(settings: Settings, names: str) -> list[str]:
    """Remove hosts from the file; returns their names. Raises UsageError."""
    wanted = _wanted(settings, names)
    _rewrite(settings, lambda document: _split(document, set(wanted), None))
    return wanted


def change(settings: Settings, names: str, changes: Mapping[str, Any]) -> list[str]:
    """Change keys of hosts (None: remove the key); returns their names. Raises UsageError."""
    wanted = _wanted(settings, names)
    _rewrite(settings, lambda document: _split(document, set(wanted), changes))
    return wanted


def values_of(words: Sequence[str]) -> dict[str, Any]:
    """Parse ``key=value`` words to TOML values; an empty value removes the key (None). Raises UsageError."""
    kinds = {name: kind for name, kind, _meaning in HOST_KEYS}
    values: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in kinds or key == "name":
            known = ", ".join(name for name in kinds if name != "name")
            raise UsageError(f"{word!r} is not a key=value of a host", f"keys: {known}")
        kind = kinds[key]
        if not text:
            values[key] = None
        elif kind == "list of words":
            values[key] = [part.strip() for part in text.split(",") if part.strip()]
        elif kind != "text" and text.isascii() and text.isdigit():
            values[key] = int(text)
        else:
            values[key] = text
    return values


def _wanted(settings: Settings, names: str) -> list[str]:
    there = {host.name for host in read_hosts(settings)}
    wanted: list[str] = parse_list(names)["nodes"]
    for name in wanted:
        if name not in there:
            raise UsageError(f"the configuration describes no host {name}", "mesh nodes list")
    if not wanted:
        raise UsageError(f"{names!r} names no host", "like node[001-004],login1")
    return wanted


def _tables(document: Any) -> Any:
    import tomlkit

    hosts = document.get("hosts")
    if hosts is None:
        hosts = tomlkit.aot()
        document.append("hosts", hosts)
        return document["hosts"]
    if not isinstance(hosts, tomlkit.items.AoT):
        tables = tomlkit.aot()
        for name in hosts:
            entry = tomlkit.table()
            entry.add("name", str(name))
            tables.append(entry)
        document.remove("hosts")
        document.append("hosts", tables)
        return document["hosts"]
    return hosts


def _split(document: Any, names: set[str], changes: Mapping[str, Any] | None) -> None:
    """Change keys of the hosts ``names``, or (``changes`` None) remove them; split tables of several hosts."""
    tables = _tables(document)
    at = 0
    while at < len(tables):
        table = tables[at]
        hosts = check_table(table.unwrap())
        runs = _runs(hosts, names)
        if len(runs) == 1 and runs[0][0] and changes is None:
            del tables[at]
            continue
        if any(chosen for chosen, _ in runs):
            kept = [
                (run, (changes or {}) if chosen else {}) for chosen, run in runs if not chosen or changes is not None
            ]
            parts = [_values_of_run(table, run, more, whole=len(runs) == 1) for run, more in kept]
            _replace(tables, at, parts)
            at += len(parts)
        else:
            at += 1


def _replace(tables: Any, at: int, parts: list[dict[str, Any]]) -> None:
    """Replace a table by parts: the first keeps its place and comments, the others follow."""
    import tomlkit

    for key in [key for key in tables[at] if key not in parts[0]]:
        del tables[at][key]
    for key, value in parts[0].items():
        if tables[at].get(key) != value:
            tables[at][key] = value
    for offset, part in enumerate(parts[1:], 1):
        entry = tomlkit.table()
        for key, value in part.items():
            entry.add(key, value)
        entry.add(tomlkit.nl())
        tables.insert(at + offset, entry)


def _runs(hosts: Sequence[Host], names: set[str]) -> list[tuple[bool, list[Host]]]:
    """The hosts in runs of chosen and other hosts; each run can be written as one pattern."""
    runs: list[tuple[bool, list[Host]]] = []
    for host in hosts:
        chosen = host.name in names
        if runs and runs[-1][0] == chosen and _fits(runs[-1][1], host):
            runs[-1][1].append(host)
        else:
            runs.append((chosen, [host]))
    return runs


def _fits(run: list[Host], host: Host) -> bool:
    return all(
        folded([str(getattr(one, key)) for one in [*run, host]]) is not None
        for key in ("name", "address", "agent_address")
    )


def _values_of_run(table: Any, run: list[Host], changes: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    part = dict(table.unwrap())
    if not whole:
        part["name"] = folded([host.name for host in run])
        for key in ("address", "agent_address"):
            if key in part and "{name}" not in part[key]:
                part[key] = folded([str(getattr(host, key)) for host in run])
    part.update(changes)
    return {key: value for key, value in part.items() if value is not None}


def folded(values: Sequence[str]) -> str | None:
    """One pattern for the values in their order; None if no pattern with one bracket exists."""
    if len(set(values)) == 1:
        return values[0]
    before = _common(values).rstrip("0123456789")
    after = _common([value[len(before) :][::-1] for value in values])[::-1].lstrip("0123456789")
    middles = [value[len(before) : len(value) - len(after)] for value in values]
    if not all(middle.isascii() and middle.isdigit() for middle in middles):
        return None
    pattern = f"{before}[{middles[0]}-{middles[-1]}]{after}"
    return pattern if expand(pattern) == list(values) else None


def _common(values: Sequence[str]) -> str:
    # The first and last string in sorted order differ earliest.
    first, last = min(values), max(values)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(char for char, _ in same)


def _rewrite(settings: Settings, change: Callable[[Any], None]) -> None:
    """Change the configuration file atomically, only to contents that can be read again."""
    import tempfile

    import tomlkit

    origin = settings.where.get("hosts", settings.file)
    if not settings.file or origin != settings.file:
        where = f"the hosts come from {origin}" if origin else "there is no configuration file"
        raise UsageError(f"{where}: nothing to change", "mesh init writes a file; then the same command again")
    with open(settings.file, encoding="utf-8") as file:
        document = tomlkit.parse(file.read())
        mode = os.fstat(file.fileno()).st_mode & 0o7777
    change(document)
    folder = os.path.dirname(os.path.realpath(settings.file))
    fd, new = tempfile.mkstemp(prefix=".mesh-", suffix=".toml", dir=folder)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(tomlkit.dumps(document))
        os.chmod(new, mode)
        try:
            read_hosts(load(config=new))
        except UsageError as error:
            told = (text.replace(new, settings.file) for text in (error.message, error.hint))
            raise UsageError(*told) from None
        os.replace(new, os.path.realpath(settings.file))
    except BaseException:
        os.unlink(new)
        raise
