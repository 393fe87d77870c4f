"""Builds the agent as one zip archive that Python runs; the same source and interpreter give the same bytes.

It has byte-code instead of source if this machine has the host's Python version; otherwise the host compiles at every
start. All modules imported at the start are in one entry (archive.py); every other module has its own.
"""

import contextlib
import hashlib
import io
import marshal
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import NamedTuple

import agents
import redmesh
from agents.link.sockets import UnsafeDirectory, own_directory
from console.deploy.agent.archive import START
from console.deploy.trust.authority import write_private
from console.settings import Settings, state_directory

#: Packages of ``agents`` that hosts do not get: they need more than the standard library, or are simulations.
_AT_HOME = ("cpa", "rca", "simulated")
#: The time stamp of every entry: the earliest that a zip file allows.
_EPOCH = (1980, 1, 1, 0, 0, 0)
#: The modules of ``redmesh`` that agents need; they need no others of that package.
GROUND_FLOOR = (
    "__init__.py", "byte_text.py", "filesystem.py", "idset.py", "managers.py", "resource_limits.py", "sanitise.py",
    "settings/__init__.py", "settings/groups.py", "settings/keeper_file.py", "settings/record.py", "state.py",
    "state_graph.py", "state_reader.py", "text.py", "version.py",
)  # fmt: skip
_ENTRY = "__main__.py"
_COMPILE_S = 60.0
_PYC_HEADER = 16  # bytes before the byte-code
_MARSHAL = 2  # a marshal version that every Python reads


class Agent(NamedTuple):
    """An archive, its SHA-256, and whether it has byte-code."""

    content: bytes
    sha: str
    compiled: bool


def archives(settings: Settings) -> str:
    """The directory for archives: in the mesh's state directory, or for a batch job's mesh in the user's own, so that
    later jobs reuse them."""
    if settings.allocation:
        with contextlib.suppress(OSError, UnsafeDirectory):
            return own_directory(f"{own_directory(state_directory(os.environ))}/agents")
    return f"{settings.state_dir}/agents"


def agent_for(tag: str, directory: str) -> Agent:
    """The agent for interpreters with the cache tag ``tag`` (``cpython-311``), stored in ``directory``."""
    python, path = interpreter(tag), path_for(tag, directory)
    try:
        with open(path, "rb") as file:
            sha = file.read(64).decode("ascii")
            return Agent(file.read(), sha, bool(python))
    except FileNotFoundError:
        pass
    os.makedirs(directory, mode=0o700, exist_ok=True)
    content = build(python)
    made = Agent(content, hashlib.sha256(content).hexdigest(), bool(python))
    write_private(path, made.sha.encode("ascii") + content)
    for old in os.listdir(directory):  # of other versions of the source
        if not old.startswith(source_digest()[:16]):
            with contextlib.suppress(FileNotFoundError):  # another job's mesh has removed it
                os.unlink(os.path.join(directory, old))
    return made


def path_for(tag: str, directory: str) -> str:
    """The path of the archive for interpreters with this cache tag; it may not be built yet."""
    python = interpreter(tag)
    kind = f"{tag}-{_version_of(python)}" if python else "source"
    return os.path.join(directory, f"{source_digest()[:16]}-{kind}.z")


def build(python: str) -> bytes:
    """Build the archive with byte-code of the interpreter ``python``; with source if that is empty."""
    entries = {_ENTRY: _program("archive.py"), **dict(sources())}
    if python:
        entries = _compiled(python, entries)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(entries.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o600 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return out.getvalue()


def sources() -> Iterator[tuple[str, bytes]]:
    """All files of the agent, by their names in the archive."""
    ground = os.path.dirname(os.path.abspath(redmesh.__file__))
    for name in GROUND_FLOOR:
        with open(os.path.join(ground, name), "rb") as file:
            yield f"redmesh/{name}", file.read()
    root = os.path.dirname(os.path.abspath(agents.__file__))
    for folder, folders, names in os.walk(root):
        inside = os.path.relpath(folder, os.path.dirname(root))
        folders[:] = sorted(one for one in folders if one != "__pycache__" and (folder != root or one not in _AT_HOME))
        for name in sorted(names):
            if name.endswith(".py") or name in ("yodio", "yodstate", "yodwork"):
                with open(os.path.join(folder, name), "rb") as file:
                    yield f"{inside}/{name}", file.read()


@cache
def source_digest() -> str:
    """SHA-256 of all source files of the agent, and of the packing code."""
    digest = hashlib.sha256(b"".join(_program(name) for name in ("build.py", "archive.py", "compiling.py")))
    for name, content in sources():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _program(name: str) -> bytes:
    return resources.files("console.deploy.agent").joinpath(name).read_bytes()


def _compiled(python: str, entries: dict[str, bytes]) -> dict[str, bytes]:
    """The entries with byte-code in place of each module; files that ranks execute stay source."""
    with tempfile.TemporaryDirectory(prefix="redmesh-agent-") as place:
        for name, content in entries.items():
            path = os.path.join(place, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
        # In a separate process, because strings interned earlier would change the byte-code.
        done = subprocess.run(
            [python, "-I", "-S", "-X", "no_debug_ranges", "-c", _program("compiling.py"), place],
            check=True, timeout=_COMPILE_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        packed, start = {}, {}
        for name, content in entries.items():
            if name.startswith("agents/yodio/"):
                packed[name] = content
            if name.endswith(".py"):
                with open(os.path.join(place, f"{name}c"), "rb") as file:
                    packed[f"{name}c"] = file.read()
        for module in done.stdout.split():
            path = module.replace(".", "/")
            package = f"{path}/__init__.pyc" in packed
            code = packed.pop(f"{path}/__init__.pyc" if package else f"{path}.pyc")
            start[module] = (package, code[_PYC_HEADER:])
        return {**packed, START: marshal.dumps(start, _MARSHAL)}


def interpreter(tag: str) -> str:
    """The path of an interpreter on this machine that makes byte-code for ``tag``; "" if there is none."""
    if tag == sys.implementation.cache_tag:
        return sys.executable
    version = re.fullmatch(r"cpython-3(\d+)", tag)
    found = shutil.which(f"python3.{version[1]}") if version else None
    return found if found and _tag_of(found) == tag else ""


@cache
def _told(python: str) -> str:
    code = "import sys; print(sys.implementation.cache_tag, '%d.%d.%d' % sys.version_info[:3])"
    done = subprocess.run(
        [python, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=10.0, stdin=subprocess.DEVNULL
    )
    return done.stdout


def _tag_of(python: str) -> str:
    return _told(python).partition(" ")[0]


def _version_of(python: str) -> str:
    return ".".join(map(str, sys.version_info[:3])) if python == sys.executable else _told(python).split()[1]
