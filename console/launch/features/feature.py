"""The interface of optional parts of a launch. The engine calls their hooks and depends on nothing else of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from agents.link.loop import Loop
    from agents.wire.errors import AgentError
    from console.launch.events.stream import Stream
    from console.launch.options.request import Request
    from console.launch.plan import Plan
    from console.launch.states import Event, Launch, State
    from console.launch.stdio.frontend import Front

    class LaunchContext(Protocol):
        """The interface of a launch for features."""

        loop: Loop
        request: Request
        state_dir: str
        launch: Launch
        front: Front
        stream: Stream
        plan: Plan | None
        begun: float  # monotonic
        moved: float  # when the launch last made progress, monotonic

        def handle(self, event: Event, *facts: Any) -> None:
            """Pass an event to the state machine and carry out its actions."""

        def send(self, message: dict[str, Any]) -> None:
            """Send a message down the tree."""

        def start_input(self) -> None:
            """Start to read standard input for the ranks."""

        def say(self, message: str, hint: str) -> None:
            """Report an error to the user and to observers."""

        def outstanding(self) -> str:
            """What a launch without progress waits for; "" if that is normal."""

        def processes(self) -> list[dict[str, Any]]:
            """Host, program and process of every rank."""


class Feature:
    """The base class: every hook does nothing. ``context`` is the launch."""

    context: LaunchContext
    #: True if this feature handles standard input at GO.
    holds_input = False

    def begin(self) -> None:
        """Called once the engine is made; processors were requested before."""

    def on_event(self, event: Event, facts: tuple[Any, ...]) -> None:
        """Called for each event, before the state machine handles it."""

    def on_state(self, before: State, event: Event, at: float) -> None:
        """Called after a change of state and its actions; ``at``: when the event came (monotonic)."""

    def on_ends(self) -> None:
        """Called when ranks have ended or were lost while the launch runs."""

    def on_reply(self, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        """Called with the CPA's answer to the request for processors."""

    def before_load(self) -> None:
        """Called when the placement is known, before the load is sent."""

    def before_confirm(self, go_on: Callable[[], None]) -> bool:
        """Called when every process is held. Return False to delay the launch, and call ``go_on`` to continue it."""
        return True

    def before_request(self, op: str) -> None:
        """Called before ``started`` or ``finish`` is sent to a CPA."""

    def before_go(self) -> None:
        """Called when the CPA has recorded the start, before GO is sent."""

    def after_go(self, *, reads_input: bool) -> None:
        """Called after GO was sent; ``reads_input``: this yod reads standard input for the ranks."""

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Called for each frame from the root."""

    def on_message(self, op: str, message: dict[str, Any]) -> None:
        """Called for each message from the root, before the engine handles it."""

    def on_sent(self, message: dict[str, Any]) -> None:
        """Called before a message is sent to the root."""

    def on_input(self, size: int) -> None:
        """Called before ``size`` bytes of standard input are sent; 0: its end."""

    def before_signal(self, number: int, ranks: list[int] | None) -> None:
        """Called before a signal is sent to the ranks (None: all)."""

    def after_signal(self, number: int, ranks: list[int] | None) -> None:
        """Called after a signal was sent."""

    def on_tick(self) -> None:
        """Called every half second."""

    def sleeps(self) -> bool:
        """Return True while the launch waits on purpose, so that the watchdog does not report it."""
        return False

    def release(self) -> bool:
        """Release held ranks; return False if this feature holds none."""
        return False

    def before_completion(self) -> None:
        """Called when every rank has ended, before the report is printed."""

    def completes(self) -> bool:
        """Report the exits and return True, or return False if the engine should report them."""
        return False

    def last_lines(self) -> list[str]:
        """Return lines to print after the completion table."""
        return []

    def close(self) -> None:
        """Called when the launch is over, also after an error."""
