"""``make release``: builds wheel and sdist in dist/, tests them in clean environments, writes notes from CHANGELOG.md.

Nothing is uploaded. A Python or an installer that is not installed is reported and skipped; any failure ends the
release with status 1.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from redmesh.version import VERSION  # noqa: E402

DIST, BIN = ROOT / "dist", Path(sys.executable).parent
PYTHONS = ("3.11", "3.12", "3.13")
COMMANDS = ("yod", "mesh", "pingd", "showmesh")


class Failed(Exception):
    """A step failed; the message has the end of its output."""


def run(*words: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Run a command; return its output. Raises Failed with the end of the output if its status is not 0."""
    done = subprocess.run(
        words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        shown = " ".join(map(str, words))
        raise Failed(f"{shown}: exit status {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def say(text: str) -> None:
    """Print one line about a step."""
    print(f"release: {text}", flush=True)


def notes() -> str:
    """The section of CHANGELOG.md for this version, or else the section "Unreleased"."""
    text = (ROOT / "CHANGELOG.md").read_text()
    for title in (re.escape(VERSION) + r"\b[^\n]*", "Unreleased"):
        found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
        if found:
            if title == "Unreleased":
                say(f"CHANGELOG.md has no heading '## {VERSION}': the notes are those of 'Unreleased'")
            return f"# Redmesh {VERSION}\n\n{found[1].strip()}\n"
    raise Failed(f"CHANGELOG.md has neither '## {VERSION}' nor '## Unreleased'")


def build() -> tuple[Path, Path]:
    """Build the site, sdist and wheel; return the paths of wheel and sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    say("documentation")
    run(sys.executable, ROOT / "tools" / "documentation.py")
    say("sdist and wheel")
    run(sys.executable, "-m", "build", "--sdist", "--wheel", "--outdir", DIST, ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def pythons() -> Iterator[tuple[str, str]]:
    """Yield version and path of each Python to test with; report those that are not installed."""
    for version in PYTHONS:
        for name in (
            f"python{version}",
            *sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))),
        ):
            path = shutil.which(name)
            probe = [path or "", "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
            if path and subprocess.run(probe, capture_output=True, text=True).stdout.strip() == version:
                yield version, path
                break
        else:
            say(f"Python {version} is not here: NOT TRIED")


def smoke(bin_directory: Path, home: Path) -> None:
    """Run a launch with the commands in ``bin_directory`` and the HOME ``home``; raise Failed if anything is wrong."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("REDMESH_", "YOD_", "XDG_", "PYTHON"))
    }
    env.update(HOME=str(home), PATH=f"{bin_directory}:/usr/bin:/bin")
    for variable in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        (home / variable).mkdir(mode=0o700, exist_ok=True)
        env[variable] = str(home / variable)
    for command in COMMANDS:
        told = run(bin_directory / command, "--version", env=env, cwd=home)
        if told != f"{command} (Redmesh) {VERSION}\n":
            raise Failed(f"{command} --version says {told!r}")
    try:
        told = run(
            bin_directory / "yod", "-quiet", "-sz", "2", "--overcommit", "sh", "-c", "echo $YOD_RANK", env=env, cwd=home
        )
        if sorted(told.split()) != ["0", "1"]:
            raise Failed(f"yod printed {told!r}")
        run(bin_directory / "mesh", "status", env=env, cwd=home)
        run(bin_directory / "mesh", "docs", "--print", env=env, cwd=home)
    finally:
        run(bin_directory / "mesh", "down", "--force", env=env, cwd=home)


def try_pythons(what: Path, above: Path) -> None:
    """Install ``what`` into a new virtual environment of every Python, and run a launch with it."""
    for version, python in pythons():
        say(f"{what.name} under Python {version}")
        place = above / f"{what.suffix[1:]}-{version}"
        run(python, "-m", "venv", place)
        run(place / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", what)
        home = above / f"h{version}{what.suffix}"
        home.mkdir()
        smoke(place / "bin", home)
        if not (place / "share/man/man1/yod.1").exists():
            raise Failed(f"{what.name} has no manual pages")


def try_installers(wheel: Path, above: Path) -> None:
    """Install the wheel with `pipx` and `uv tool`, and run a launch with each."""
    for name in ("pipx", "uv"):
        tool = shutil.which(name, path=f"{BIN}:{os.environ.get('PATH', '')}")
        if not tool:
            say(f"{name} is not here: NOT TRIED")
            continue
        say(f"{name} with {wheel.name}")
        home = above / name
        home.mkdir()
        env = {**os.environ, "HOME": str(home), "PIPX_HOME": str(home / "pipx"), "PIPX_BIN_DIR": str(home / "bin")}
        env |= {
            "UV_TOOL_DIR": str(home / "tools"),
            "UV_TOOL_BIN_DIR": str(home / "bin"),
            "UV_PYTHON_DOWNLOADS": "never",
        }
        python = os.path.realpath(sys.executable)
        words = ["install", "--python", python] if name == "pipx" else ["tool", "install", "--python", python]
        run(tool, *words, wheel, env=env, cwd=home)
        smoke(home / "bin", home)


def main() -> int:
    """Make the release; return 1 and print the reason if a step fails."""
    above = Path(tempfile.mkdtemp(prefix="rm-release-"))
    try:
        text = notes()
        wheel, sdist = build()
        (DIST / f"notes-{VERSION}.md").write_text(text)
        try_pythons(wheel, above)
        try_installers(wheel, above)
    except Failed as failure:
        print(f"release: FAILED: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(above, ignore_errors=True)
    say(f"ready: {wheel.name}, {sdist.name}, notes-{VERSION}.md in {DIST}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
