"""A worker of a job (``mesh submit``): the program of a rank that runs one task after another on its processor.

Tasks come in batches from the job's owner, through the node's launch child and yod, and results go back in batches, so
a task needs neither a launch nor the database. Standard library only, Python 3.9. docs/jobs.md, docs/protocol.md
*Workers*.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import select
import signal
import sys
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, List, Optional, Set, Tuple

    from agents.yodio.yodbytes import each_to_system, from_system, to_system
    from agents.yodio.yodfields import PART, file_name, filled
    from agents.yodio.yodio import Channel
    from agents.yodio.yodmemory import out_of_memory
    from agents.yodio.yodparts import age, is_written, not_written, of_attempt, settle, written
    from agents.yodio.yodstopped import Stops
else:
    from yodbytes import each_to_system, from_system, to_system
    from yodfields import PART, file_name, filled
    from yodio import Channel
    from yodmemory import out_of_memory
    from yodparts import age, is_written, not_written, of_attempt, settle, written
    from yodstopped import Stops

if TYPE_CHECKING:
    from agents.yodio.yodcaller import Caller
    from agents.yodio.yodparts import Found, Written
    from agents.yodio.yodreport import Report, ReportServer
    from agents.yodio.yodstage import Stage

_STATE = 12  # operation (docs/protocol.md)
#: Seconds that a result may wait for others; and the most results, and bytes of last lines, sent at once.
_FLUSH_S, _FLUSH, _FLUSH_BYTES = 0.02, 200, 128 << 10
#: Bytes kept of a task's last output.
_LINES = 4 << 10
#: The same for each stream of a section (docs/sections.md): at most a hundred lines.
_SECTION_LINES, _MOST_LINES = 16000, 100
#: Reports that the owner has not answered, above which further ones are refused: a program may report faster than the
#: owner records. Answers that are not read in time fill the launch child's queue, which then reads no request.
_MOST_REPORTS = 1000
#: Reads of 64 KiB from a task's pipe before other events are handled: a pipe holds at most 1 MiB by default.
_PIECES = 16
#: Seconds from SIGTERM to SIGKILL for a task that exceeds its time limit, or whose job is cancelled.
_GRACE_S = 2.0
#: Seconds between checks of a task if the kernel lacks pidfd_open (before Linux 5.3).
_LOOK_S = 0.01
#: How often, and after which pause in seconds, a worker looks whether killed processes of a section have exited.
_ENDS, _ENDS_S = 100, 0.001
_SHELL = "/bin/sh"
_HOST = os.uname().nodename
#: What to do about a program that cannot be started.
_NOT_STARTED = {
    errno.EACCES: " (chmod +x makes it a program)",
    errno.ENOEXEC: " (a script begins with #!/bin/sh or the like)",
    errno.ENOENT: " (are the program, and the interpreter of a script, on the node?)",
}
_ONE_WORD = " (this is one word, and no shell reads it: sh -c '…')"
_RANK = int(os.environ.get("YOD_RANK", "0"))
TIMED_OUT = 124  # the exit status of timeout(1)


class Process:
    """An attempt at a task, while it runs."""

    def __init__(self, number: int, attempt: int, limit_s: float) -> None:
        self.number, self.attempt = number, attempt
        self.started_at = time.time()
        self.kill_at = time.monotonic() + limit_s if limit_s else 0.0  # when the next signal is due
        self.cause, self._signals = "", 0
        self.pid, self.pidfd = 0, -1
        self.pipes: Dict[int, str] = {}  # descriptors, each with the name of its stream
        self.tails: Dict[str, bytes] = {}  # the last output of each stream
        self.output = self.errors = ""  # files for its output; without errors, one file takes both streams
        self.error = ""  # the error that its program reported
        self.parts: List[Tuple[str, str]] = []  # files that it writes, with their final names
        #: Files that its program writes under their final names, each as it was before.
        self.direct: List[Tuple[str, Optional[Found]]] = []
        self.mark = ""  # in the names of its files
        self.written: Optional[List[Written]] = None  # its parts as it has left them, for a section that succeeded
        self.held = ""  # what has one of them still open for writing, and its part is a copy
        self.kept = _LINES
        self.stage: Optional[Stage] = None  # the stage from which its parts are sent

    def pipe(self, name: str) -> int:
        """Create a pipe for a stream; returns the end to write to."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        self.pipes[reader], self.tails[name] = name, b""
        return writer

    def drain(self, fd: int) -> bool:
        """Read its output, but not endlessly; False at the end."""
        name = self.pipes[fd]
        try:
            for _ in range(_PIECES):
                data = os.read(fd, 65536)
                if not data:
                    return False
                self.tails[name] = (self.tails[name] + data)[-self.kept :]
        except BlockingIOError:
            pass
        return True

    def signal(self) -> None:
        """Send the next signal to its process group: SIGTERM, then SIGKILL."""
        number = signal.SIGKILL if self._signals else signal.SIGTERM
        self._signals += 1
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def last_lines(self) -> str:
        """Its last output: from its pipes, or from its file."""
        for stream, path in (("", self.output), ("stderr", self.errors)):
            if not path:
                continue
            try:
                with open(path, "rb") as file:
                    file.seek(max(0, os.fstat(file.fileno()).st_size - self.kept))
                    self.tails[stream] = file.read(self.kept)
            except (OSError, ValueError):
                pass
        told = ""
        for name, tail in self.tails.items():
            text = os.fsdecode(tail)
            if name and text:
                text = "".join([f"--- {name}\n", *text.splitlines(True)[-_MOST_LINES:]])
            told += "\n" + text if told and not told.endswith("\n") else text
        return told

    def settle(self, status: int) -> str:
        """After a success, check that it has written its files, and give them their final names; otherwise delete them.

        Returns the error, or "".
        """
        for path, before in self.direct:
            if not status and not is_written(path, before):
                return not_written(path)
        for part, name in self.parts:
            try:
                if status:
                    os.unlink(part)
                elif self.stage is not None:
                    self.stage.put(part, name)
                else:
                    self._settle(part, name)
            except OSError as error:
                if not status:
                    return f"{name} was not written: {error.strerror}"
        for path, _ in self.direct if self.stage is None and not status else ():
            try:
                self._settle(path, path)
            except OSError as error:
                return f"{path} was not written: {error.strerror}"
        return ""

    def _settle(self, part: str, name: str) -> None:
        held = settle(part, name, of_attempt(name, self.mark, self.attempt))
        if held:
            self.held += f"{name} is a copy: {held} that the section left behind has the file open for writing\n"
        self.written = [*(self.written or ()), written(name)]


class Worker:
    """Runs tasks until the owner has no more."""

    def __init__(self) -> None:
        self._channel = Channel()
        self._poll = select.poll()
        self._poll.register(self._channel.fileno(), select.POLLIN)
        self._halts = Stops()
        self._queue: Deque[List[Any]] = deque()
        self._results: List[List[Any]] = []
        self._size, self._oldest = 0, 0.0
        self._process: Optional[Process] = None
        self._caller: Optional[Caller] = None  # for a job of functions
        self._asked = -1
        self._unanswered: set[int] = set()
        self._job: Dict[str, Any] = {}
        self._env: Dict[str, str] = {}
        self._stops = self._cancelled = self._told_broken = False
        self._reports: Optional[ReportServer] = None
        self._stage: Optional[Stage] = None

    def run(self) -> int:
        """Run tasks to their end; returns the exit status."""
        try:
            return self._work()
        finally:
            if self._stage is not None:
                self._stage.close()

    def _work(self) -> int:
        self._ask()
        while True:
            if self._caller is not None:
                if self._queue:
                    self._caller.give(self._queue)
                    self._queue.clear()
                if not self._caller.busy or time.monotonic() - self._oldest >= _FLUSH_S:
                    self._flush()
                if self._stops and not self._unanswered and not self._caller.busy:
                    self._caller.close()
                    return 0
            elif self._process is None:
                if self._queue:
                    self._start(*self._queue.popleft())
                    continue
                self._flush()
                if self._stops and not self._unanswered:  # otherwise the end of the launch could overtake the results
                    return 0
            elif self._results and time.monotonic() - self._oldest >= _FLUSH_S:
                self._flush()
            self._wait()

    def _wait(self) -> None:
        timeout = -1.0
        process = self._process
        now = time.monotonic()
        busy = process is not None or (self._caller is not None and self._caller.busy)
        due = [self._halts.due] if busy or self._halts.told else []
        if self._caller is not None and self._results:
            due.append(self._oldest + _FLUSH_S)
        if process is not None:  # otherwise nothing waits to be sent
            if process.kill_at:
                due.append(process.kill_at)
            if self._results:
                due.append(self._oldest + _FLUSH_S)
            if process.pidfd < 0:
                due.append(now + _LOOK_S)
        if due:
            timeout = max(0.0, min(due) - now)
        ready = self._poll.poll(None if timeout < 0 else timeout * 1000 + 0.5)
        # A cancellation may wait behind the answers of reports, so the owner's messages come before further reports.
        answered = any(fd == self._channel.fileno() for fd, _ in ready)
        for fd, _ in ready:
            if fd == self._channel.fileno():
                self._take()
            elif self._caller is not None and fd == self._caller.results:
                self._take_results(self._caller)
            elif process is not None and fd in process.pipes:
                if not process.drain(fd):
                    self._close_pipe(process, fd)
            elif self._reports is not None and not answered:
                self._reports.handle(fd)
        if time.monotonic() >= self._halts.due:
            self._tell_stopped()
        if process is not None:
            if process.pidfd < 0 or any(fd == process.pidfd for fd, _ in ready):
                self._reap(process)
            if self._process is process and process.kill_at and time.monotonic() >= process.kill_at:
                self._kill(process, f"the time limit of {self._job['time_s']:g} s is reached")

    def _tell_stopped(self) -> None:
        """Tell the owner that the process of the present task is stopped, if that has changed."""
        process, caller = self._process, self._caller
        pid = process.pid if process is not None else caller.pid if caller is not None else 0
        if self._halts.news(pid):
            number = process.number if process is not None else -1
            self._tell({"op": "stopped", "pid": self._halts.told, "number": number, "since": time.time()})

    def _take_results(self, caller: Caller) -> None:
        before = caller.results
        rows = caller.take()
        if caller.results != before or caller.restarted:
            self._poll.unregister(before)
            if caller.results >= 0:
                self._poll.register(caller.results, select.POLLIN)
            caller.restarted = False
            if self._halts.told:
                self._tell_stopped()
        for row in rows:
            self._add(row, len(row[7]))
        self._tell_broken(caller)

    def _tell_broken(self, caller: Caller) -> None:
        """Tell the owner once that no process can run calls: it ends the job."""
        if caller.broken and not self._told_broken:
            self._told_broken = True
            self._tell({"op": "worked", "results": [], "broken": from_system(caller.broken), "error": caller.error})

    # Messages of the owner

    def _ask(self) -> None:
        self._asked = self._channel.send(
            _STATE,
            data=json.dumps(
                {"op": "work", "pid": os.getpid(), "rank": _RANK, "byte_text": True, "prepares": True}
            ).encode(),
        )

    def _take(self) -> None:
        for number, data in self._channel.arrived():
            if number != self._asked:
                self._unanswered.discard(number)
                continue
            told = json.loads(bytes(data))
            if "error" in told:
                raise OSError(errno.EPROTO, told["error"])
            if "job" in told:
                self._begin(each_to_system(told["job"]))
            self._queue.extend(told.get("tasks", ()))
            if told.get("test"):
                self._tell({"op": "tested", "reason": from_system(tested(self._job))})
            for unwanted in told.get("kill", ()):
                if self._process is not None and self._process.number == unwanted:
                    self._kill(self._process, "another copy of the section was first")
            if told.get("cancel"):
                self._cancel()
            recalled = told.get("recall")
            if recalled:
                self._give_back(None if recalled is True else set(recalled))
                self._flush()  # before the next request: what the owner still has then for this worker has begun
            self._stops = bool(told.get("stop"))
            if not self._stops:
                self._ask()

    def _begin(self, job: Dict[str, Any]) -> None:
        self._job = job
        self._env = {**os.environ, **job["env"], "REDMESH_JOB": job["uuid"]}
        package = job.get("package")
        if package:
            try:
                self._env["REDMESH_FILES"] = importlib.import_module("yodpackage").unpack(package["name"])
            except OSError as error:
                told = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
                self._job["wrong"] = f"the job's files cannot be unpacked on {_HOST}: {told}"
                return
            if package["within"]:
                job["cwd"] = self._env["REDMESH_FILES"]
        try:
            if (job.get("sections") or {}).get("stage"):
                self._stage = importlib.import_module("yodstage").Stage(job["cwd"])
                os.chdir(self._stage.directory)
            else:
                os.chdir(job["cwd"])
        except OSError as error:
            told = f"the directory cannot be entered: {job['cwd']} on {_HOST}: {error.strerror}"
            other = " (--cwd DIR names another, --file takes files along)" if self._is_plain() else ""
            self._job["wrong"] = f"{told}; every node needs it{other}"
        if job.get("functions"):
            try:
                caller: Caller = importlib.import_module("yodcaller").Caller(job, self._env)
            except OSError as error:
                python = job["functions"]["python"]
                told = f"the program's Python {python} cannot be run on {_HOST}: {error.strerror}"
                self._job["wrong"] = f"{told}; every node needs it at that path"
                return
            self._caller = caller
            self._tell_broken(caller)
            if not caller.broken:
                self._poll.register(caller.results, select.POLLIN)

    def _is_plain(self) -> bool:
        """True for a job of mesh submit, False for sections and functions."""
        return not (self._job.get("sections") or self._job.get("functions"))

    def _give_back(self, only: Optional[Set[int]] = None) -> None:
        """Give back the tasks that have not begun: ``only`` these, or all."""
        kept: Deque[List[Any]] = deque()
        for task in self._queue:
            if only is None or task[0] in only:
                self._report(task[0], task[1], 0, 0.0, "", "dropped")
            else:
                kept.append(task)
        self._queue = kept
        if self._caller is not None:
            for number, attempt in self._caller.give_back(only):
                self._report(number, attempt, 0, 0.0, "", "dropped")

    def _cancel(self) -> None:
        self._give_back()
        if self._caller is not None:
            for number, attempt in self._caller.drop():
                self._report(number, attempt, 0, 0.0, "", "dropped")
        if self._process is not None:
            self._cancelled = True
            self._kill(self._process, "cancelled")

    # Tasks

    def _start(self, number: int, attempt: int, given: Optional[str]) -> None:
        process = Process(number, attempt, self._job["time_s"])
        try:
            if self._job.get("wrong"):
                raise OSError(errno.ENOENT, self._job["wrong"])
            self._spawn(process, str(number), given)
        except (OSError, ValueError) as error:
            status = 127 if isinstance(error, FileNotFoundError) else 126
            process.settle(1)
            if self._reports is not None:
                self._reports.end()
            why = str(error)
            if isinstance(error, OSError) and error.strerror:
                why = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            why = f"not started: {why}"
            self._report(number, attempt, status, process.started_at, "" if self._job.get("sections") else why, why)
            return
        try:
            process.pidfd = os.pidfd_open(process.pid)
            self._poll.register(process.pidfd, select.POLLIN)
        except (OSError, AttributeError):
            pass
        self._process = process

    def _spawn(self, process: Process, number: str, told: Optional[str]) -> None:
        job = self._job
        given = None if told is None else to_system(told)
        text = number if given is None else given
        if job["command"]:
            words = [filled(word, number, text) for word in job["command"]]
            if given is not None and not job["places"]:
                words.append(given)
        else:
            words = [_SHELL, "-c", text]
        env = {**self._env, "REDMESH_TASK": number, "REDMESH_TASK_ATTEMPT": str(process.attempt)}
        if given is not None:
            env["REDMESH_TASK_INPUT"] = given
        if job.get("sections"):
            words, text = self._section(process, each_to_system(json.loads(told or "{}")), env)
        else:
            process.output = filled(job["output"], number, file_name(text))
            process.errors = filled(job.get("error", ""), number, file_name(text))
        stdin = filled(job["stdin"], number, text) or os.devnull
        actions: List[Tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, _checked(stdin), os.O_RDONLY, 0)]
        writers: List[int] = []
        for stream, path in ((1, process.output), (2, process.errors)):
            if path:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666))
                actions.append((os.POSIX_SPAWN_OPEN, stream, path, os.O_WRONLY | os.O_APPEND, 0))
        if process.output:
            actions += [] if process.errors else [(os.POSIX_SPAWN_DUP2, 1, 2)]
        else:
            writers += [process.pipe(name) for name in (("stdout", "stderr") if job.get("sections") else ("",))]
            actions += [(os.POSIX_SPAWN_DUP2, writers[0], 1)]
            actions += [] if process.errors else [(os.POSIX_SPAWN_DUP2, writers[-1], 2)]
        try:
            process.pid = os.posix_spawnp(
                words[0], words, env, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_DEFAULTS
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            for fd in process.pipes:
                os.close(fd)
            if isinstance(error, ValueError):
                raise
            code = error.errno or 0
            hint = _NOT_STARTED.get(code, "") if " " not in words[0] else _ONE_WORD
            raise OSError(code, os.strerror(code), words[0] + hint) from None
        finally:
            for fd in writers:
                os.close(fd)
        for fd in process.pipes:
            self._poll.register(fd, select.POLLIN)

    def _section(self, process: Process, told: Dict[str, Any], env: Dict[str, str]) -> Tuple[List[str], str]:
        """The command and the id of a section; its parts of outputs get names of this attempt."""
        process.kept, process.stage, process.output = _SECTION_LINES, self._stage, told.get("output", "")
        words: List[str] = told["words"]
        mark = process.mark = self._job["sections"].get("mark", "")
        for place, name in enumerate(told["parts"]):
            part = own = of_attempt(name, mark, process.attempt)
            if self._stage is not None:
                own = self._stage.local(part if told["named"] else name)
                os.makedirs(os.path.dirname(own), exist_ok=True)
                if _RANK == 0 or self._job["sections"]["size"] == 1:
                    process.parts.append((own, part))  # the owner gives it its final name
            elif not self._job["sections"].get("settles"):
                process.parts.append((part, name))
            mine = to_system(PART.format(place))  # under an encoding other than UTF-8 it has other characters
            words = [word.replace(mine, own) for word in words]
        if self._stage is not None:
            self._stage.fetch(told["inputs"])
        # Before a section of several ranks, the owner looks at the files.
        direct = [] if self._job["sections"].get("settles") else told.get("direct", [])
        if self._stage is not None and not told["named"]:
            direct = [own for own, _ in process.parts]
        process.direct = [(path, age(path, of_attempt(path, mark, process.attempt))) for path in direct]
        if self._reports is None:
            module = importlib.import_module("yodreport")  # the module beside this file, whatever the package
            self._reports = module.ReportServer(self._poll, self._on_report)
        env.update(self._reports.begin(told["id"]))
        return words, str(told["id"])

    def _on_report(self, report: Report) -> None:
        process = self._process
        if process is None:
            return
        if report.kind == "error":
            process.error = report.text or "an error"
        if len(self._unanswered) >= _MOST_REPORTS:
            module = importlib.import_module("yodreport")
            raise module.Refused(f"{_MOST_REPORTS} reports wait for the job's owner; report less often")
        told = {"op": "report", "number": process.number, "kind": report.kind, "part": report.part}
        self._tell({**told, "text": report.text})

    def _tell(self, message: Dict[str, Any]) -> None:
        self._unanswered.add(self._channel.send(_STATE, data=json.dumps(message).encode()))

    def _close_pipe(self, process: Process, fd: int) -> None:
        self._poll.unregister(fd)
        del process.pipes[fd]
        os.close(fd)

    def _kill(self, process: Process, why: str) -> None:
        process.signal()
        process.cause = process.cause or why
        process.kill_at = time.monotonic() + _GRACE_S

    def _reap(self, process: Process) -> None:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        ended_at = time.time()
        if process.cause or self._job.get("sections"):  # what a section leaves behind must not write to its parts
            _end_group(process.pid)
        _, told, used = os.wait4(process.pid, 0)
        lack = "" if process.cause else out_of_memory(process.pid, told, used)
        if self._job.get("sections"):
            _await_group(process.pid)
        if process.pidfd >= 0:
            self._poll.unregister(process.pidfd)
            os.close(process.pidfd)
        for fd in list(process.pipes):
            process.drain(fd)
            self._close_pipe(process, fd)
        if self._reports is not None:
            self._reports.end()
        status = 128 + os.WTERMSIG(told) if os.WIFSIGNALED(told) else os.WEXITSTATUS(told)
        cause = process.cause
        wrong = process.settle(1 if process.error or process.cause else status)
        if self._cancelled:
            cause = "killed"
        elif cause:
            status = TIMED_OUT
        elif lack or os.WIFSIGNALED(told):
            cause = lack or f"signal {os.WTERMSIG(told)}"
        if not cause and (process.error or wrong):
            cause = f"the program reported: {process.error}" if process.error else wrong
        self._process, self._cancelled = None, False
        if self._halts.told:
            self._tell_stopped()
        lines = process.last_lines()
        if process.held:
            lines += ("" if lines.endswith("\n") or not lines else "\n") + "--- redmesh\n" + process.held
        self._report(
            process.number, process.attempt, status, process.started_at, lines, cause, ended_at,
            written=process.written if not (status or cause) else None,
        )  # fmt: skip

    # Results

    def _report(
        self, number: int, attempt: int, status: int, started_at: float, lines: str, cause: str,
        ended_at: float = 0.0, written: Optional[List[Written]] = None,
    ) -> None:  # fmt: skip
        row = [number, attempt, status, started_at, ended_at or time.time(), from_system(lines), from_system(cause)]
        self._add(row if written is None else [*row, written], len(lines))

    def _add(self, row: List[Any], size: int) -> None:
        if not self._results:
            self._oldest = time.monotonic()
        self._results.append(row)
        self._size += size
        if len(self._results) >= _FLUSH or self._size > _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._results:
            told = json.dumps({"op": "worked", "results": self._results}).encode()
            self._unanswered.add(self._channel.send(_STATE, data=told))
            self._results, self._size = [], 0


def tested(job: Dict[str, Any]) -> str:
    """Test this node for sections; returns the error, or ""."""
    if job.get("wrong"):
        return str(job["wrong"])
    rules = job["sections"]["probe"]
    free = os.statvfs(".")
    disk_mb = free.f_bavail * free.f_frsize >> 20
    if disk_mb < rules["disk_mb"]:
        return f"{disk_mb} MiB are free in {job['cwd']}, {rules['disk_mb']} are wanted (min_disk_mb)"
    with open("/proc/meminfo") as file:
        memory_mb = next((int(line.split()[1]) >> 10 for line in file if line.startswith("MemAvailable:")), 1 << 40)
    if memory_mb < rules["memory_mb"]:
        return f"{memory_mb} MiB of memory are free, {rules['memory_mb']} are wanted (min_memory_mb)"
    return _probe(rules["command"], rules["time_s"]) if rules["command"] else ""


def _probe(words: List[str], time_s: float) -> str:
    import subprocess

    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.setpgid(0, 0),
        )
    except OSError as error:
        return f"the probe {words[0]}: {error.strerror}"
    try:
        output = process.communicate(timeout=time_s)[0]
    except subprocess.TimeoutExpired:
        return f"the probe {words[0]} has not ended within {time_s:g} s"
    finally:
        _end_group(process.pid)  # what it has started holds its output, too
        process.wait()
    told = os.fsdecode(output).strip()[-200:]
    if not process.returncode:
        return ""
    return f"the probe {words[0]} ended with {process.returncode}" + (f": {told}" if told else "")


#: Signals that Python ignores: a task gets their default actions, as under a shell.
_DEFAULTS = [number for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT) if number]


def _checked(path: str) -> str:
    """A readable file; the error names it, because posix_spawn's own error names the program."""
    if not os.access(path, os.R_OK):
        raise OSError(errno.ENOENT, "standard input cannot be read", path)
    return path


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass


def _await_group(pid: int) -> None:
    """Wait for the end of killed processes, which have parts open until then; but not long: one may wait for a
    device."""
    for _ in range(_ENDS):
        try:
            os.killpg(pid, 0)
        except OSError:
            return
        time.sleep(_ENDS_S)


def main() -> int:
    """The program of the rank; returns the exit status."""
    try:
        return Worker().run()
    except OSError as error:
        print(f"worker of a job: {error.strerror or error}", file=sys.stderr)
        return 1
