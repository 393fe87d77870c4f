"""What a part of a launch is that a plain launch does not have: the engine calls its hooks, and knows no more of it."""

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
        """What features see of a launch, and what they may do to it."""

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
            """Give the machine an event and do what it says."""

        def send(self, message: dict[str, Any]) -> None:
            """Send a message down the tree."""

        def start_input(self) -> None:
            """Begin to read standard input for the ranks."""

        def say(self, message: str, hint: str) -> None:
            """Tell an error to people and followers."""

        def outstanding(self) -> str:
            """What a launch that does not move waits for; "" when it may."""

        def processes(self) -> list[dict[str, Any]]:
            """Every rank's host, program and process."""


class Feature:
    """Every hook here does nothing. ``context`` is the launch."""

    context: LaunchContext
    #: Whether standard input is left to this feature at GO.
    holds_input = False

    def begin(self) -> None:
        """The engine is made, and has asked for processors."""

    def on_event(self, event: Event, facts: tuple[Any, ...]) -> None:
        """Something happened; what follows of it is not decided yet."""

    def on_state(self, before: State, event: Event, at: float) -> None:
        """The launch has another state since ``at`` (monotonic), and has done what belongs to it."""

    def on_ends(self) -> None:
        """A rank has ended, or was lost, while the launch runs."""

    def on_reply(self, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        """The CPA has answered the request for processors."""

    def before_load(self) -> None:
        """It is known who runs where; the load is about to be sent."""

    def before_confirm(self, go_on: Callable[[], None]) -> bool:
        """Every process is held. False: not yet, and ``go_on`` is called when it may go on, if ever."""
        return True

    def before_request(self, op: str) -> None:
        """``started`` or ``finish`` is about to be sent to a CPA."""

    def before_go(self) -> None:
        """The CPA knows of the start; GO is about to be sent."""

    def after_go(self, *, reads_input: bool) -> None:
        """GO has been sent; ``reads_input``: this yod reads standard input for the ranks."""

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame has come from the root."""

    def on_message(self, op: str, message: dict[str, Any]) -> None:
        """A message has come from the root; the engine takes it after this."""

    def on_sent(self, message: dict[str, Any]) -> None:
        """A message is about to be sent to the root."""

    def on_input(self, size: int) -> None:
        """So many bytes of standard input are about to be sent; 0: it has ended."""

    def before_signal(self, number: int, ranks: list[int] | None) -> None:
        """The ranks (None: all) are about to be sent a signal."""

    def after_signal(self, number: int, ranks: list[int] | None) -> None:
        """They were sent it."""

    def on_tick(self) -> None:
        """Half a second has gone."""

    def sleeps(self) -> bool:
        """Whether the launch stands still because somebody wanted it to."""
        return False

    def release(self) -> bool:
        """Let held ranks run; False where nothing is held by this."""
        return False

    def before_completion(self) -> None:
        """Every rank has ended; how they did is about to be told."""

    def completes(self) -> bool:
        """Tell how ranks ended instead of the engine; False: the engine is to do it."""
        return False

    def last_lines(self) -> list[str]:
        """What people are told behind the completion lines."""
        return []

    def close(self) -> None:
        """The launch is over, however it came to that."""
