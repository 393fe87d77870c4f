"""The state of a launcher as its RCA sees it: a state machine without I/O, one for each registered connection.

The daemon watches sockets, /proc and the clock, and passes what it observes to the machine.
"""

from agents.link.lean import Enum

LOOK_AFTER_S = 2.0  # two beats missed: check whether the process exists


class State(Enum):
    """The state of a launcher."""

    REGISTERED = "registered"  # sends beats, or has not been silent for long
    STOPPED = "stopped"  # silent because of job control (^Z), which is no reason to end its job
    ENDING = "ending"  # has left its finish with us
    LOST = "lost"  # exited without a finish: a CPA must clean up
    GONE = "gone"  # has unregistered, or exited after its finish


class Event(Enum):
    """An observation of a launcher."""

    BEAT = "beat"
    QUIET = "quiet"  # silent for silent_s, and not stopped
    QUIET_STOPPED = "quiet, stopped"  # silent, and in state T
    DIED = "died"  # its process does not exist, or its pid belongs to another process
    FINISH = "finish"
    UNREGISTER = "unregister"
    LINK_ENDED = "link ended"


class Action(Enum):
    """A task for the daemon."""

    REPORT_LOST = "tell a CPA launcher_lost"
    RELAY_FINISH = "tell a CPA finish"


S, E, A = State, Event, Action

TRANSITIONS: dict[tuple[State, Event], tuple[State, tuple[Action, ...]]] = {
    (S.REGISTERED, E.BEAT): (S.REGISTERED, ()),
    (S.REGISTERED, E.QUIET): (S.LOST, (A.REPORT_LOST,)),
    (S.REGISTERED, E.QUIET_STOPPED): (S.STOPPED, ()),
    (S.REGISTERED, E.DIED): (S.LOST, (A.REPORT_LOST,)),
    (S.REGISTERED, E.FINISH): (S.ENDING, (A.RELAY_FINISH,)),
    (S.REGISTERED, E.UNREGISTER): (S.GONE, ()),
    (S.REGISTERED, E.LINK_ENDED): (S.LOST, (A.REPORT_LOST,)),
    (S.STOPPED, E.BEAT): (S.REGISTERED, ()),
    (S.STOPPED, E.QUIET): (S.REGISTERED, ()),  # continued just now: its silence counts from here
    (S.STOPPED, E.QUIET_STOPPED): (S.STOPPED, ()),
    (S.STOPPED, E.DIED): (S.LOST, (A.REPORT_LOST,)),
    (S.STOPPED, E.FINISH): (S.ENDING, (A.RELAY_FINISH,)),
    (S.STOPPED, E.UNREGISTER): (S.GONE, ()),
    (S.STOPPED, E.LINK_ENDED): (S.LOST, (A.REPORT_LOST,)),
    (S.ENDING, E.BEAT): (S.ENDING, ()),
    (S.ENDING, E.QUIET): (S.ENDING, ()),  # we have its finish, so nothing can be lost
    (S.ENDING, E.QUIET_STOPPED): (S.ENDING, ()),
    (S.ENDING, E.DIED): (S.GONE, ()),
    (S.ENDING, E.FINISH): (S.ENDING, (A.RELAY_FINISH,)),  # repeated: report it to the CPA again
    (S.ENDING, E.UNREGISTER): (S.GONE, ()),
    (S.ENDING, E.LINK_ENDED): (S.GONE, ()),
}

OVER = frozenset((State.LOST, State.GONE))  # final states


class Launcher:
    """A registered launcher. ``now`` is monotonic seconds, always given by the caller."""

    __slots__ = ("heard_at", "launcher", "login", "pid", "pid_started", "reason", "state", "uid")

    def __init__(
        self, pid: int, pid_started: int, launcher: int | None, now: float, login: str = "", uid: int | None = None
    ) -> None:
        # ``launcher`` and ``login`` are what the client says; the kernel says the others.
        self.login = login  # the login processor that it asked on; "": the RCA's own
        self.uid = uid
        self.pid, self.pid_started, self.launcher = pid, pid_started, launcher
        self.heard_at = now
        self.state = State.REGISTERED
        self.reason = ""

    def handle(self, event: Event, now: float, reason: str = "") -> tuple[Action, ...]:
        """Apply an event; returns the actions to take."""
        if self.state in OVER:
            return ()
        before = self.state
        self.state, actions = TRANSITIONS[before, event]
        if event is Event.BEAT or (before is State.STOPPED and self.state is State.REGISTERED):
            self.heard_at = now
        if self.state is State.LOST:
            self.reason = reason
        return actions

    def wants_look(self, now: float) -> bool:
        """True if it has been silent for long enough to check its process."""
        return self.state is State.STOPPED or now - self.heard_at >= LOOK_AFTER_S

    def seen(self, alive: bool, stopped: bool, silent_s: float, now: float) -> tuple[Action, ...]:
        """Apply the result of a check of its process."""
        silence = now - self.heard_at
        if not alive:
            return self.handle(Event.DIED, now, "its process is gone")
        if stopped:
            return self.handle(Event.QUIET_STOPPED, now)
        if self.state is State.STOPPED or silence >= silent_s:
            return self.handle(Event.QUIET, now, f"silent for {silence:.0f} s")
        return ()

    def forgive(self, gap_s: float) -> None:
        """Do not count the time in which the RCA itself was stopped."""
        self.heard_at += gap_s
