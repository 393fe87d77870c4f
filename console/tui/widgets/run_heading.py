"""What is said about a launch above its ranks and beside its output. Pure text."""

from __future__ import annotations

from textual.content import Content

from console.launch.report import fold_ranks
from console.tui.output import Output
from console.tui.run import Phase, Run
from console.tui.words import amount, elapsed, several


def heading(run: Run, trouble: str, now: float, room: int) -> Content:
    """Number, command, phase, and what else fits into ``room`` columns. ``now``: as events are stamped."""
    style = {Phase.RUNNING: "$success", Phase.ENDED: "$error" if run.failed else "$success"}.get(run.phase, "$warning")
    what: str = run.phase.value
    if run.phase is Phase.ENDED:
        what = f"exit {run.exit_status}" + (f" after {run.elapsed_s:.1f} s" if run.elapsed_s is not None else "")
    elif run.phase is Phase.RUNNING and run.held:
        what, style = "held at the first instruction", "$warning"
    elif run.phase is Phase.RUNNING and run.started_at is not None:
        what = f"running {elapsed(max(0.0, now - run.started_at))}"
        if run.bad_exits:
            what, style = f"{what}, {run.ended_badly:,} of {several(run.size, 'rank')} ended badly", "$error"
    elif run.phase is Phase.GONE and trouble:
        what = trouble
    right = Content.assemble(("  ", ""), (what, style))
    left = Content.assemble((f" {run.launcher} ", "bold reverse"), " ", (run.command or "…", "bold"))
    wanted = min(left.cell_length, room * 2 // 3)  # the command comes before what else there is to say
    facts = [several(run.size, "rank"), run.user, f"partition {run.partition}" if run.partition else ""]
    for fact in filter(None, facts):
        more = right.append(Content.styled(f"  {fact}", "$quiet"))
        if more.cell_length <= room - wanted:
            right = more
    if left.cell_length > (space := max(8, room - right.cell_length)):
        left = left.truncate(space, ellipsis=True)
    return left.append(right)


def volume(output: Output, shown: int, whole: bool) -> str:
    """How much there is, and how much of it is shown. ``whole``: all of it can be scrolled to."""
    parts = [f"{amount(output.total_bytes)}, {several(output.end, 'line')}"]
    if output.first and not whole:
        parts.append(f"the newest {len(output):,} kept")
    if shown != output.end and not (output.first and shown == len(output)):
        parts.append(f"{shown:,} shown")
    if output.skipped_bytes:
        parts.append(f"{amount(output.skipped_bytes)} skipped")
    return " · ".join(parts)


def whose(ranks: frozenset[int] | None) -> str:
    """``rank 3``, ``ranks 0-3,8``; empty for all."""
    if ranks is None:
        return ""
    told = fold_ranks(sorted(ranks))
    return f"rank {told}" if len(ranks) == 1 else f"ranks {told if len(told) < 24 else told[:23] + '…'}"
