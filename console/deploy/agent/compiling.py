"""Compiles an agent with an interpreter like the host's: ``python -I -S compiling.py DIRECTORY``.

Replaces each module by its byte-code without docstrings (which are an eighth of it), and prints the names of modules
that an agent imports at its start and for its first launch. Standard library only, Python 3.9 or newer. Run it with
``-X no_debug_ranges``: column numbers for tracebacks are a third of the packed byte-code.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import marshal
import os
import sys

#: What a node's keeper and PCT import before they register.
AT_START = (
    "agents.keeper.__main__",
    "agents.pct.remote.gateway",
    "agents.pct.node.contact",
    "agents.pct.heartbeat.boot_id",
)
#: What the first launch on a node imports besides.
AT_LAUNCH = (
    "agents.pct.launch_child.child",
    "agents.pct.launch_child.load_check",
    "agents.pct.launch_child.payload_transfer",
    "agents.pct.remote.image_proxy",
    "agents.pct.remote.spare_handshake",
    "agents.pct.ranks.vfork",
    "agents.pct.stdio.shared_stdin",
    "agents.pct.files.yodio",
    "agents.pct.images.broadcast",
    "agents.pct.images.digests",
    "agents.pct.images.serve",
    "agents.pct.launch.deaths",
)


#: The flags of a hash-based, unchecked .pyc (PEP 552).
_UNCHECKED = (1).to_bytes(4, "little")


def without_docstrings(tree: ast.Module) -> ast.Module:
    """Remove the module's docstrings, which no code of the agent reads."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                node.body[:1] = [] if len(node.body) > 1 else [ast.copy_location(ast.Pass(), first)]
    return tree


def compiled(path: str, name: str) -> bytes:
    """The contents of a module's .pyc: hash-based and never checked, because no source is beside it."""
    with open(path, "rb") as file:
        source = file.read()
    code = compile(without_docstrings(ast.parse(source)), name, "exec", dont_inherit=True)
    digest = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + digest + marshal.dumps(code)


def main(directory: str) -> None:
    """Compile everything, then determine what is imported at the start."""
    os.chdir(directory)
    for folder, folders, names in os.walk("."):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.normpath(os.path.join(folder, name))
                content = compiled(path, path)
                with open(path + "c", "wb") as file:
                    file.write(content)
                os.unlink(path)
    sys.dont_write_bytecode = True
    sys.path.insert(0, directory)
    for module in (*AT_START, *AT_LAUNCH):
        importlib.import_module(module)
    print("\n".join(sorted(name for name in sys.modules if name.partition(".")[0] in ("agents", "redmesh"))))


if __name__ == "__main__":
    main(sys.argv[1])
