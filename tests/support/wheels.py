"""Builds wheels and virtual environments for tests; Redmesh's requirements are taken from the tests' environment."""

import importlib.util
import shutil
import site
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(source: Path, into: Path) -> Path:
    """Build the wheel of the source tree ``source`` in the directory ``into``; skip the test if that is impossible."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds our wheel, is not installed")
    into.mkdir(exist_ok=True)
    words = [sys.executable, "-P", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(into)]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the wheel of {source} cannot be built: {done.stderr[-300:]}")
    return next(into.glob("*.whl"))


def build_of_commit(commit: str, directory: Path) -> Path:
    """Build the wheel of an older commit; skip the test if the repository does not have the commit."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True)
    if packed.returncode:
        pytest.skip(f"there is no commit {commit} here to build an older version of")
    source = directory / "source"
    source.mkdir()
    subprocess.run(["tar", "-x", "-C", str(source)], input=packed.stdout, check=True)
    made = build(source, directory / "wheel")
    shutil.rmtree(source)
    return made


def write_wheel(into: Path, name: str, files: Mapping[str, str]) -> Path:
    """Write a wheel of another distribution ``name`` with ``files`` (path → content); return its path."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    path = into / f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
    told = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    whole = {**files, **told}
    record = "".join(f"{file},,\n" for file in (*whole, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in {**whole, f"{info}/RECORD": record}.items():
            wheel.writestr(file, content)
    return path


class Environment:
    """A virtual environment without Redmesh, which finds the other packages of the tests' environment."""

    def __init__(self, directory: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
        self.bin = directory / "bin"
        (self.packages,) = directory.glob("lib/python3.*/site-packages")
        # A directory that a .pth file adds is not searched for further .pth files, so that the editable installation of
        # Redmesh is not found.
        (self.packages / "requirements.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))

    def install(self, *wheels: Path) -> None:
        """Install these wheels, and nothing that they require."""
        self._pip("install", "--no-deps", "--no-index", "--force-reinstall", *map(str, wheels))

    def uninstall(self, *names: str) -> None:
        """Uninstall these distributions."""
        self._pip("uninstall", "--yes", *names)

    def _pip(self, *words: str) -> None:
        # Without --no-compile, as users install: byte code that pip did not write would be left at uninstall.
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "--disable-pip-version-check", "-q"]
        done = subprocess.run([*pip, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def files(self) -> dict[str, bytes]:
        """Map the path of every file in site-packages, except byte code, to its content."""
        found = (path for path in self.packages.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(self.packages)): path.read_bytes() for path in found}
