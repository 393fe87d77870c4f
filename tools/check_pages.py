"""Checks Markdown pages for `make check`: links and paths must exist, lines of prose have at most 100 characters.

Links to web pages are not checked.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 100
#: Pages that may have long lines: existing entries are not wrapped again.
LONG_LINES = ("CHANGELOG.md",)


def pages() -> list[Path]:
    """The Markdown pages that git tracks, or would add; not those in tests/."""
    words = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.md"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in listed if not name.startswith("tests/") and (ROOT / name).exists()]


def without_fences(text: str) -> list[str]:
    """The lines of a page, with the lines of code blocks replaced by empty ones."""
    lines, fence = [], ""
    for line in text.splitlines():
        mark = re.match(r"\s*(```+|~~~+|:::+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        elif not fence:
            lines.append(line)
            continue
        lines.append("")
    return lines


def anchors(page: Path) -> set[str]:
    """The anchors of a page: its headings in the form that GitHub and the site use in links."""
    found = set()
    for line in without_fences(page.read_text()):
        heading = re.match(r"#+ +(.*)", line)
        if heading:
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").lower()
            found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def faults(page: Path) -> list[str]:
    """The faults of a page, one line each."""
    found = []
    name = str(page.relative_to(ROOT))
    for number, line in enumerate(without_fences(page.read_text()), 1):
        if name.startswith("docs/"):
            for path in re.findall(
                r"`((?:agents|console|db|redmesh|simulated|tests|tools)/(?!_)(?!\S*NNNN)[\w/]+(?:\.py)?)`", line
            ):
                if not (ROOT / path).exists():
                    found.append(f"{name}:{number}: there is no {path}")
        plain = re.sub(r"`[^`]*`", "", line)
        for target in re.findall(r"\]\(([^)\s]+)\)", plain):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            to = (page.parent / file).resolve() if file else page
            if not to.exists():
                found.append(f"{name}:{number}: the link to {target} leads nowhere")
            elif anchor and to.suffix == ".md" and anchor not in anchors(to):
                found.append(f"{name}:{number}: {file or name} has no heading for #{anchor}")
        prose = not line.startswith(("|", "#", "![", "<", "- ["))
        if prose and len(line) > LONGEST and not name.startswith(LONG_LINES):
            found.append(f"{name}:{number}: {len(line)} characters; prose is wrapped at {LONGEST}")
    return found


def torn_merges() -> list[str]:
    """Conflict markers of unfinished merges, in any file."""
    words = ["git", "-C", str(ROOT), "grep", "-nE", "^(<{7}|>{7}) "]
    return subprocess.run(words, capture_output=True, text=True).stdout.splitlines()


def main() -> int:
    """Print every fault; return 1 if there is one."""
    found = [fault for page in pages() for fault in faults(page)] + torn_merges()
    print("".join(f"{fault}\n" for fault in found), end="")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
