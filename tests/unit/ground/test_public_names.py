"""``import redmesh``: what it loads, and which names it has."""

import re
import subprocess
import sys
from pathlib import Path

import redmesh


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import redmesh; print(*sorted(set(sys.modules) - before))"
    root = str(Path(redmesh.__file__).parents[1])
    words = [sys.executable, "-P", "-S", "-c", code]
    told = subprocess.run(words, env={"PYTHONPATH": root}, capture_output=True, text=True)
    assert told.stdout == "redmesh\n", told


def test_type_checkers_know_the_same_names() -> None:
    stub = Path(redmesh.__file__).with_name("__init__.pyi").read_text()
    known = re.findall(r" as (\w+)$|^def (\w+)", stub, re.MULTILINE)
    assert sorted(one or other for one, other in known) == sorted(redmesh.__all__)
    assert all(getattr(redmesh, name) is not None for name in redmesh.__all__)
