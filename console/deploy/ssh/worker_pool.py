"""Works on many hosts in parallel, with a separate result for each host."""

import gc
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from console.deploy.hosts.description import Host
from console.deploy.hosts.host_states import FINAL, Event, HostFailed, State, after
from console.deploy.ssh.remote import Remote
from console.errors import ConsoleError
from console.settings import Settings

#: Hosts in parallel.
AT_ONCE = 32
#: Seconds for one request to a host.
ANSWER_S = 30.0
#: The garbage collector runs after this many allocations: connections allocate many objects, few of them garbage.
_COLLECT_AFTER = 50_000


class Report(Protocol):
    """Displays progress; called from many threads, one at a time."""

    def moved(self, errand: "HostTask") -> None:
        """Show a host's new state."""

    def note(self, text: str) -> None:
        """Show a warning that concerns no host in particular."""


class Answers(Protocol):
    """A host that answers requests (console/deploy/ssh/remote.py). Every method raises HostFailed."""

    def ask(
        self, op: str, blobs: Mapping[str, bytes] | None = None, timeout_s: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Send a request and return the host's answer."""

    def run(self, words: Sequence[str], given: bytes, timeout_s: float) -> tuple[int, str]:
        """Run a command on the host; return its exit status and the first line of its standard error."""

    def close(self) -> None:
        """Disconnect."""


class Starter(Protocol):
    """Starts the program that answers requests on hosts, by other means than SSH (console/deploy/managed/steps.py)."""

    def prepare(self, hosts: Sequence[Host]) -> None:
        """Start the program on these hosts. Raises ConsoleError."""

    def reach(self, host: Host) -> Answers:
        """Return a host on which the program runs. Raises HostFailed."""

    def close(self) -> None:
        """Disconnect everywhere."""


class _Nobody:
    def moved(self, errand: "HostTask") -> None:
        pass

    def note(self, text: str) -> None:
        pass


class HostTask:
    """The work on one host: the host, its state, the facts found there, and its failure."""

    def __init__(self, host: Host, crew: "WorkerPool") -> None:
        self.host, self._crew = host, crew
        self.state = State.WAITING
        self.facts: dict[str, Any] = {}
        self.failure: HostFailed | None = None
        self.remote: Answers | None = None
        self.clock_off_s = 0.0  # the host's clock minus this machine's
        self.kept_jobs: list[str] = []  # UUIDs of the state objects that stay on the host after its node has ended
        self.began = time.monotonic()
        self.took_s = 0.0

    @property
    def name(self) -> str:
        """The node's name."""
        return self.host.name

    @property
    def node(self) -> str:
        """The node's name with the mesh's, which is unique among the account's nodes on the host."""
        return f"{self._crew.settings.mesh}-{self.host.name}"

    def handle(self, event: Event) -> None:
        """Apply an event to the state, and report a new state."""
        before, self.state = self.state, after(self.state, event)
        if self.state is not before:
            self.took_s = time.monotonic() - self.began
            self._crew.tell(self)

    def fail(self, failure: HostFailed) -> None:
        """Record an error: nothing more is done on the host."""
        self.failure = failure
        self.close()
        self.handle(Event.TROUBLE)

    def ask(self, op: str, **options: Any) -> dict[str, Any]:
        """Send a request and return the host's answer. Raises HostFailed."""
        assert self.remote is not None
        return self.remote.ask(op, node=self.node, **options)

    def close(self) -> None:
        """Disconnect."""
        remote, self.remote = self.remote, None
        if remote is not None:
            remote.close()


class WorkerPool:
    """Works on the hosts of a mesh over SSH, or by ``starter``. Raises ConsoleError if SSH's configuration is
    unusable."""

    def __init__(
        self, settings: Settings, report: Report, *, accept_new: bool = False, starter: "Starter | None" = None
    ) -> None:
        self.settings, self._report = settings, report
        self._starter = starter
        if starter is None:
            # Do not import paramiko for a mesh of a batch job.
            from console.deploy.ssh.config import SshConfig
            from console.deploy.ssh.connection import Ssh

            config = SshConfig(settings.ssh_config)
            for note in config.notes:
                report.note(note)
            self._ssh = Ssh(config, settings.connect_s, accept_new=accept_new)
        self._lock = threading.Lock()
        self._errands: list[HostTask] = []

    def quiet(self) -> "WorkerPool":
        """Stop the progress display; returns this pool."""
        self._report = _Nobody()
        return self

    def errands(self, hosts: Iterable[Host]) -> list[HostTask]:
        """A task for each host."""
        made = [HostTask(host, self) for host in hosts]
        self._errands += made
        if self._starter is not None:
            self._starter.prepare([task.host for task in made])
        return made

    def tell(self, errand: HostTask) -> None:
        """Display a host's new state."""
        with self._lock:
            self._report.moved(errand)

    def each(self, errands: Sequence[HostTask], work: Callable[[HostTask], None]) -> None:
        """Call ``work`` in parallel for every host that is not in a final state; HostFailed is recorded in its task."""
        todo = [errand for errand in errands if errand.state not in FINAL]
        if not todo:
            return
        with ThreadPoolExecutor(min(AT_ONCE, len(todo)), thread_name_prefix="host") as pool:
            try:
                for _ in pool.map(lambda errand: self._one(errand, work), todo):
                    pass
            except BaseException:  # an interrupt: cancel what has not started
                pool.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise

    def _one(self, errand: HostTask, work: Callable[[HostTask], None]) -> None:
        try:
            work(errand)
        except HostFailed as failure:
            errand.fail(failure)
        except ConsoleError as error:  # an error in ~/.ssh/config that concerns this host
            errand.fail(HostFailed("configuration", error.message, error.hint))

    def look(self, errand: HostTask) -> None:
        """Connect to the host and examine it. Raises HostFailed."""
        errand.began = time.monotonic()
        errand.handle(Event.BEGIN)
        if self._starter is not None:
            errand.remote = self._starter.reach(errand.host)
            errand.handle(Event.LET_IN)
        else:
            errand.remote = self._by_ssh(errand)
        asked = time.time()
        errand.facts = errand.ask("facts")
        answered = time.time()
        errand.clock_off_s = _clock_off(float(errand.facts.get("clock", 0.0)), asked, answered)
        errand.handle(Event.TOLD)

    def _by_ssh(self, errand: HostTask) -> Remote:
        connection = self._ssh.connect(errand.host)
        errand.handle(Event.LET_IN)
        try:
            return Remote(connection, errand.host, ANSWER_S)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Disconnect everywhere."""
        for errand in self._errands:
            errand.close()
        if self._starter is not None:
            self._starter.close()
        else:
            self._ssh.close()


@contextmanager
def crew(
    settings: Settings, report: Report, *, accept_new: bool = False, starter: Starter | None = None
) -> Iterator[WorkerPool]:
    """A WorkerPool that disconnects at the end of the block."""
    _raise_descriptor_limit()
    gc.freeze()  # imported objects are not garbage: do not scan them
    gc.set_threshold(_COLLECT_AFTER)
    one = WorkerPool(settings, report, accept_new=accept_new, starter=starter)
    try:
        yield one
    finally:
        one.close()


def _clock_off(theirs: float, asked: float, answered: float) -> float:
    # The host read its clock between ``asked`` and ``answered``: 0 if its time is in this interval.
    if theirs < asked:
        return theirs - asked
    return max(0.0, theirs - answered)


def _raise_descriptor_limit() -> None:
    # A connection to every host is open at the same time.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
