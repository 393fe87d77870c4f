"""The interface of optional parts of a launch: the engine calls their hooks and knows nothing else about them."""

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
            """Begin to read standard input for the ranks."""

        def say(self, message: str, hint: str) -> None:
            """Report an error to people and observers."""

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
        """The engine exists and has requested processors."""

    def on_event(self, event: Event, facts: tuple[Any, ...]) -> None:
        """An event, before the state machine handles it."""

    def on_state(self, before: State, event: Event, at: float) -> None:
        """The state has changed at ``at`` (monotonic), and its actions are done."""

    def on_ends(self) -> None:
        """A rank has ended, or was lost, while the launch runs."""

    def on_reply(self, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        """The CPA has answered the request for processors."""

    def before_load(self) -> None:
        """The placement is known; the load is about to be sent."""

    def before_confirm(self, go_on: Callable[[], None]) -> bool:
        """Every process is held. Return False to delay; call ``go_on`` later to continue."""
        return True

    def before_request(self, op: str) -> None:
        """``started`` or ``finish`` is about to be sent to a CPA."""

    def before_go(self) -> None:
        """The CPA knows of the start; GO is about to be sent."""

    def after_go(self, *, reads_input: bool) -> None:
        """GO was sent; ``reads_input``: this yod reads standard input for the ranks."""

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame from the root."""

    def on_message(self, op: str, message: dict[str, Any]) -> None:
        """A message from the root, before the engine handles it."""

    def on_sent(self, message: dict[str, Any]) -> None:
        """A message is about to be sent to the root."""

    def on_input(self, size: int) -> None:
        """``size`` bytes of standard input are about to be sent; 0: its end."""

    def before_signal(self, number: int, ranks: list[int] | None) -> None:
        """A signal is about to be sent to the ranks (None: all)."""

    def after_signal(self, number: int, ranks: list[int] | None) -> None:
        """A signal was sent."""

    def on_tick(self) -> None:
        """Half a second has passed."""

    def sleeps(self) -> bool:
        """True if the launch is stopped on purpose."""
        return False

    def release(self) -> bool:
        """Release held ranks; False if this feature holds none."""
        return False

    def before_completion(self) -> None:
        """Every rank has ended; the report is about to be printed."""

    def completes(self) -> bool:
        """Report the exits instead of the engine; False: the engine does it."""
        return False

    def last_lines(self) -> list[str]:
        """Lines for people after the completion table."""
        return []

    def close(self) -> None:
        """The launch is over, in whatever way."""
