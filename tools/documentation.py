"""``make docs``: builds the documentation site from docs/, the examples' pages, and docstrings and parsers.

The pages are copied into build/docs-source, generated pages are added, and Sphinx builds build/site from it. A warning
is an error. Neither the build nor the site needs a network.
"""

import gc
import inspect
import re
import shutil
import sys
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import redmesh  # noqa: E402
from console.cli.mesh.manual import mesh_reference  # noqa: E402
from redmesh.version import VERSION  # noqa: E402

SOURCE, SITE = ROOT / "build" / "docs-source", ROOT / "build" / "site"

#: The order of the site's pages. A page of docs/ that is in no list is added at the end, under "More".
NAVIGATION = {
    "Tutorial": ["tutorial", "examples/README"],
    "Guides": [
        "guides/mpi", "guides/pytorch", "guides/why-it-hangs", "guides/ssh-hosts", "guides/one-mesh-for-everybody",
        "guides/inside-slurm", "guides/slurm", "guides/arrays", "guides/sections", "guides/notebooks",
    ],
    "In depth": [
        "console", "mpi", "stacks", "jobs", "sections", "python", "deployment", "system", "managers", "recording",
        "simulation",
    ],
    "Reference": [
        "yod", "mesh", "reference-mesh", "showmesh", "pingd", "yodio", "configuration", "exit-status",
        "reference-python", "reference-events", "state-object", "topology", "placement", "protocol", "database",
    ],
    "Explanation": ["architecture", "security", "scale", "decisions/README"],
    "Glossary": ["glossary"],
    "Troubleshooting": ["troubleshooting", "messages"],
}  # fmt: skip

CONFIGURATION = {
    "project": "Redmesh",
    "author": "The Redmesh developers",
    "copyright": "The Redmesh developers",
    "release": VERSION,
    "extensions": ["myst_parser"],
    "html_theme": "furo",
    "html_title": f"Redmesh {VERSION}",
    "html_show_sourcelink": False,
    "html_copy_source": False,
    "myst_heading_anchors": 4,
    "myst_enable_extensions": ["colon_fence"],
    "pygments_style": "friendly",
    "pygments_dark_style": "github-dark",
    "suppress_warnings": ["misc.highlighting_failure"],
    "exclude_patterns": ["systemd"],
}


def main() -> int:
    """Build the site; return Sphinx's status."""
    from sphinx.cmd.build import build_main

    gc.set_threshold(100_000, 50, 100)  # Sphinx keeps what it reads; to look for garbage in it took a fifth of the time
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE)
    shutil.copytree(ROOT / "examples", SOURCE / "examples")
    shutil.copytree(ROOT / "screenshots", SOURCE / "screenshots", ignore=lambda _, names: [
        name for name in names if not name.endswith(".png")
    ])  # fmt: skip
    (SOURCE / "reference-mesh.md").write_text(mesh_reference())
    (SOURCE / "reference-python.md").write_text(python_reference())
    (SOURCE / "reference-events.md").write_text(events_reference())
    for page in SOURCE.rglob("*.md"):
        text = page.read_text()
        changed = re.sub(r"\]\((\.\./)+(examples|screenshots)/", _up(page), text)
        if page.parent == SOURCE / "examples" or page.parent.parent == SOURCE / "examples":
            changed = re.sub(r"\]\(((?:\.\./)+)docs/", lambda found: f"]({found[1]}", changed)
        if changed != text:
            page.write_text(changed)
    index = SOURCE / "index.md"
    index.write_text(index.read_text() + _toctrees())
    (SOURCE / "conf.py").write_text("".join(f"{key} = {value!r}\n" for key, value in CONFIGURATION.items()))
    status = build_main(
        ["-q", "-W", "--keep-going", "-b", "html", "-d", str(ROOT / "build/doctrees"), str(SOURCE), str(SITE)]
    )
    if not status:
        for left in (".buildinfo", "objects.inv"):
            (SITE / left).unlink(missing_ok=True)
        print(f"{SITE}/index.html")
    return status


def _up(page: Path) -> str:
    return "](" + "../" * (len(page.relative_to(SOURCE).parts) - 1) + r"\2/"


def _toctrees() -> str:
    listed = {name for names in NAVIGATION.values() for name in names}
    decisions = sorted(f"decisions/{page.stem}" for page in (SOURCE / "decisions").glob("0*.md"))
    examples = sorted(f"examples/{page.parent.name}/README" for page in (SOURCE / "examples").glob("*/README.md"))
    index = SOURCE / "decisions" / "README.md"
    index.write_text(index.read_text() + _toctree("", [page.removeprefix("decisions/") for page in decisions]))
    index = SOURCE / "examples" / "README.md"
    index.write_text(index.read_text() + _toctree("", [page.removeprefix("examples/") for page in examples]))
    pages = [*SOURCE.glob("*.md"), *SOURCE.glob("guides/*.md")]
    more = sorted({str(page.relative_to(SOURCE).with_suffix("")) for page in pages} - listed - {"index"})
    text = "".join(_toctree(caption, names) for caption, names in NAVIGATION.items())
    return text + (_toctree("More", more) if more else "")


def _toctree(caption: str, names: list[str]) -> str:
    head = f":caption: {caption}\n" if caption else ""
    return "\n```{toctree}\n:hidden:\n:maxdepth: 1\n" + head + "\n" + "\n".join(names) + "\n```\n"


def python_reference() -> str:
    """The page of the Python interface: signatures and docstrings of the names in ``redmesh``."""
    lines = ["# Python interface: every name", "", "[From Python](python.md) shows how these are used.", ""]
    for name in redmesh.__all__:
        thing = getattr(redmesh, name)
        if inspect.isfunction(thing):
            lines += _described(f"redmesh.{name}", thing, 2)
        elif inspect.isclass(thing):
            lines += _described(f"redmesh.{name}", thing, 2)
            for below, member in sorted(vars(thing).items()):
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if not below.startswith("_") and inspect.isfunction(function) and function.__doc__:
                    lines += _described(below, function, 3, attribute=isinstance(member, property))
        else:
            lines += [f"## redmesh.{name}", "", f"The constant `{thing!r}`.", ""]
    return "\n".join(lines)


def _described(name: str, thing: typing.Any, depth: int, *, attribute: bool = False) -> list[str]:
    try:
        signature = "" if attribute else str(inspect.signature(thing))
    except (TypeError, ValueError):
        signature = ""
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)  # remove the quotes of annotations, not of defaults
    short = name.removeprefix("redmesh.")
    shown = f"{'class ' if inspect.isclass(thing) else ''}{short}{signature}"
    return [f"{'#' * depth} {name}", "", "```python", shown, "```", "", _prose(inspect.getdoc(thing) or ""), ""]


def _prose(text: str) -> str:
    """Convert a docstring to Markdown: ``code`` becomes `code`, and indented paragraphs become code blocks."""
    parts = []
    text = re.sub(r":(?:class|func|meth):`([^`]*)`", r"`\1`", text)
    for part in text.replace("``", "`").split("\n\n"):
        lines = part.splitlines()
        indented = bool(lines) and all(line.startswith("    ") for line in lines)
        parts.append("```text\n" + inspect.cleandoc(part) + "\n```" if indented else part)
    return "\n\n".join(parts)


def events_reference() -> str:
    """The page of the events of ``yod -json`` and ``Launch``: a table of fields for each event."""
    from redmesh import events

    lines = [
        "# Events", "",
        "`yod -json` writes one JSON object a line: `event` is its kind, `at` the time in seconds UTC, and each kind",
        "has fields of its own ([protocol](protocol.md#yod-and-its-observers)). A reader ignores kinds and fields it",
        "does not know.", "",
        "```json",
        '{"event":"allocated","at":1795392052.13,"launcher":9,"partition":9,"command":"./a.out","size":2,'
        '"nodes":[{"name":"n0","processors":[0,1]}]}',
        '{"event":"started","at":1795392052.24,"ranks":[[4583,"n0"],[4584,"n0"]]}',
        '{"event":"output","rank":1,"stream":"stdout","data":"eAo="}',
        '{"event":"exit","at":1795392052.29,"rank":0,"node":"n0","status":0,"signal":0,"core":false,'
        '"elapsed_s":0.0091,"by_yod":false}',
        '{"event":"end","at":1795392052.30,"exit_status":1,"elapsed_s":0.161}',
        "```", "",
        "A `redmesh.Launch` gives the same as objects of these classes ([from Python](python.md)); `kind`, `at` and",
        "`fields` (the JSON object) are in all of them.", "",
    ]  # fmt: skip
    for name in redmesh.__all__:
        thing = getattr(redmesh, name)
        if inspect.isclass(thing) and thing.__module__ == events.__name__ and "__annotations__" in vars(thing):
            lines += [f"## {name}", "", _prose(inspect.getdoc(thing) or ""), "", "| field | type |", "|---|---|"]
            for field, kind in vars(thing)["__annotations__"].items():
                shown = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
                lines.append(f"| `{field}` | `{shown}` |".replace(" | None", " or None").replace("|`", "|`"))
            lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
