"""What a launch that does not move waits for, in words. Loaded only when one has stood still for a moment."""

from __future__ import annotations

from console.launch.forming import State
from console.launch.report import fold_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from console.launch.machine import Launch
    from console.launch.request import Request


#: Nodes that are named when they keep a launch waiting.
_NAMED = 12


def outstanding(launch: Launch, request: Request) -> str:
    """What is outstanding and on which nodes; "" when a launch may stand still."""
    state, ranks = launch.state, launch.ranks
    if state is State.ALLOCATING:
        return f"waiting for processors ({request.size or 'the list'})" if request.wait_s else "no CPA has answered yet"
    if state is State.LOADING:
        return f"no word yet that the processes are ready on {_few(ranks.nodes_not_ready())}"
    if state is State.CONFIRMING:
        return "no CPA has confirmed the start yet"
    over = state is State.RUNNING and (launch.killed or ranks.all_ended)
    if over or state in (State.CLEARING, State.RETREATING):
        left = [ranks.node_name(at) for at, _ in ranks.not_ended_by_node()]
        return f"no word yet from {_few(left or [ranks.node_name(0)])} that every process is gone"
    if state in (State.FREEING, State.RETURNING):
        return "no CPA has freed the processors yet"
    return ""


def _few(names: list[str]) -> str:
    """Names folded; of a machine's worth of them the first, and how many more: it is one line for a person."""
    rest = len(names) - _NAMED
    return fold_names(names[:_NAMED]) + (f" and {rest} more nodes" if rest > 0 else "")
