"""An engine that attends to a launch beyond the plain way (attending.py does it, manner.py says what).

A plain launch loads none of this.
"""

from __future__ import annotations

import time

from console.errors import ConsoleError
from console.launch.engine import Engine
from console.launch.features.hold import Hold
from console.launch.states import STEP_S, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.options.request import Request


class AttendedEngine(Engine):
    """Stands before Engine, or before another kind of it (``attended``)."""

    def __init__(self, loop: Loop, request: Request, **others: Any) -> None:
        super().__init__(loop, request, **others)
        manner = request.manner
        assert manner is not None
        self._wants_input = False
        self._attending = Hold(
            manner, loop, self.launch, self.front, self.stream, self._down, lambda: super(AttendedEngine, self)._feed()
        )

    def run(self) -> int:
        """See the launch through to its end; whatever happens the terminal is given back."""
        try:
            return super().run()
        finally:
            self._attending.close()

    def release(self) -> None:
        """Let a held launch run."""
        self._attending.release()

    def _confirm(self) -> None:
        self._attending.confirm(super()._confirm)

    def _go(self) -> None:
        if self._attending.mpir_file:
            self._write_table()
        super()._go()
        self._attending.went(feeds=self._wants_input)

    def _write_table(self) -> None:
        from console.launch.attach.mpir import write

        try:
            write(self._attending.mpir_file, self.processes())
        except ConsoleError as error:
            self.front.complain(error.message)  # the launch is not to blame

    def _feed(self) -> None:
        self._wants_input = True  # when it is time

    def _on_message(self, op: str, message: dict[str, Any]) -> None:
        if op == "backtrace":
            self._attending.trace(message)
        else:
            super()._on_message(op, message)

    def _signal(self, number: int, ranks: list[int] | None) -> None:
        super()._signal(number, ranks)
        self._attending.signalled(number)

    def outstanding(self) -> str:
        asleep = time.monotonic() - self.moved < self._attending.patience_s + STEP_S / 2
        if self._attending.patience_s and asleep and self.launch.state in (State.LOADING, State.CONFIRMING):
            return ""
        return super().outstanding()

    def _print_completion(self) -> None:
        self._attending.close()
        super()._print_completion()
        for line in self._attending.last_lines():
            self.front.line(f"yod: {line}")


def attended(kind: type[Engine]) -> type[Engine]:
    """``kind``, attended."""
    return AttendedEngine if kind is Engine else type("AttendedEngine", (AttendedEngine, kind), {})
