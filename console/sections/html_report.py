"""A job's report: one self-contained HTML file with its description, results, times and places."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from console.sections.attempts import Attempt
from redmesh.text import counted

#: The most attempts drawn: more are unreadable, and slow in browsers.
MOST = 20_000
_WIDTH, _LANE, _GAP, _LEFT = 1000, 9, 3, 130
_COLOURS = {"done": "#2a7f62", "failed": "#c0392b", "waiting": "#e08e0b", "cancelled": "#8a8a8a", "running": "#2f6fb7"}
_WORDS = {"done": "finished", "failed": "failed", "waiting": "failed, tried again", "cancelled": "cancelled"}
_STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}
pre{background:#8881;padding:.6em;overflow:auto;max-height:24em}svg{max-width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:currentColor}.key span{display:inline-block;width:.8em;height:.8em;
margin:0 .3em 0 1em}
"""


def page(
    title: str,
    facts: Sequence[tuple[str, str]],
    found: Sequence[Attempt],
    failures: Sequence[tuple[str, str, str]],
    names: Mapping[int, str],
    now: float,
) -> str:
    """The file's text. ``facts``: rows of the table at the top. ``failures``: section, error, last lines.

    ``names``: users' names of sections, if not their numbers.
    """
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1><table>",
        *(f"<tr><th>{html.escape(key)}<td>{html.escape(value)}" for key, value in facts),
        "</table><h2>When and where</h2>",
        _chart(found[:MOST], names, now) if found else "<p>Nothing has run.",
    ]
    if len(found) > MOST:
        parts.append(f"<p>The first {MOST} of {counted(len(found), 'attempt')} are drawn.")
    parts += ["<h2>Nodes</h2>", _nodes(found, now)]
    if failures:
        parts.append("<h2>Failures</h2>")
        for section, what, lines in failures:
            parts.append(f"<h3>Section {html.escape(section)}</h3><p>{html.escape(what)}")
            parts.append(f"<pre>{html.escape(lines)}</pre>" if lines else "")
    return "\n".join(parts) + "\n"


def _chart(found: Sequence[Attempt], names: Mapping[int, str], now: float) -> str:
    """An SVG chart: time from left to right, and for each node a lane for every simultaneous attempt."""
    begin = min(one.began for one in found)
    end = max(max(one.ended or now for one in found), begin + 1e-3)
    scale = (_WIDTH - _LEFT) / (end - begin)
    bars, labels, y = [], [], 4
    for node in sorted({one.node for one in found}, key=_by_number):
        lanes: list[float] = []
        top = y
        for one in (one for one in found if one.node == node):
            ends = one.ended or now
            lane = next((place for place, free in enumerate(lanes) if free <= one.began), len(lanes))
            lanes[lane : lane + 1] = [ends]
            x, width = _LEFT + (one.began - begin) * scale, max(0.6, (ends - one.began) * scale)
            told = f"{names.get(one.number, one.number)}: {_WORDS.get(one.state, one.state)}, {ends - one.began:.2f} s"
            told += f", {one.cause}" if one.cause else ""
            bars.append(
                f'<rect x="{x:.1f}" y="{top + lane * _LANE}" width="{width:.1f}" height="{_LANE - 1}"'
                f' fill="{_COLOURS.get(one.state, "#2f6fb7")}"><title>{html.escape(told)}</title></rect>'
            )
        y += max(1, len(lanes)) * _LANE + _GAP
        labels.append(f'<text x="0" y="{top + _LANE}">{html.escape(node[:18] or "?")}</text>')
    for tick in range(6):
        x = _LEFT + (_WIDTH - _LEFT) * tick / 5
        anchor = "end" if tick == 5 else "middle"
        labels.append(f'<text x="{x:.0f}" y="{y + 12}" text-anchor="{anchor}">{_span((end - begin) * tick / 5)}</text>')
    key = "".join(f'<span style="background:{_COLOURS[state]}"></span>{word}' for state, word in _WORDS.items())
    return (
        f'<p class=key>{key}<svg viewBox="0 0 {_WIDTH} {y + 18}" width="{_WIDTH}" role="img"'
        f' aria-label="attempts by node and time">{"".join(labels)}{"".join(bars)}</svg>'
    )


def _nodes(found: Sequence[Attempt], now: float) -> str:
    rows = []
    for node in sorted({one.node for one in found}, key=_by_number):
        its = [one for one in found if one.node == node]
        busy = sum((one.ended or now) - one.began for one in its)
        counts = [sum(one.state == state for one in its) for state in ("done", "failed", "waiting")]
        cells = (node, len(its), counts[0], counts[1] + counts[2], _span(busy), _span(busy / len(its)))
        rows.append("<tr>" + "".join(f"<td>{html.escape(str(cell))}" for cell in cells))
    head = "<tr><th>node<th>attempts<th>finished<th>failed<th>busy<th>mean"
    return f"<table>{head}{''.join(rows)}</table>"


def _by_number(name: str) -> tuple[str, int]:
    return name.rstrip("0123456789"), int("0" + name[len(name.rstrip("0123456789")) :])


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
