"""Finds a job's object and queries it: on this host, on the node that the tracker names, or where that node sent it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from agents.link import trust
from agents.objects import connection
from agents.objects.answers import Question
from agents.objects.changes import wait_for_change
from agents.objects.holder import Holder
from agents.objects.http_query import Answer, answer, refused
from agents.objects.sender import ask_again
from agents.objects.states import State
from agents.wire.address import SCHEME
from agents.wire.errors import AgentError
from console.deploy.mesh.cpas import ask_cpa
from console.errors import ConsoleError
from console.jobs.foreign import ForeignJob, find
from console.jobs.job_record import ENDED, JobRecord
from console.jobs.objects import directory_of
from console.launch.daemons.connect import login_name, mesh_name
from console.settings import Settings
from db.errors import StoreError
from db.views.rows import UDP
from db.views.viewer import open_viewer
from redmesh import state
from redmesh.state import SUFFIX, StateError, is_uuid

_WAIT_S = 25.0


class Source:
    """The place of an object: ``path`` on this host, or ``address`` of the node that has it, or a copy of it.

    ``proxied``: the login processor with the object, if the node answers from a copy because nobody can connect there.
    """

    def __init__(self, uuid: str, path: str = "", address: str = "", proxied: str = "") -> None:
        self.uuid, self.path, self.address, self.proxied = uuid, path, address, proxied
        self.etag = ""

    @property
    def node(self) -> str:
        """The node that has the object; "" for this host."""
        return self.address.rpartition("/")[2].removesuffix(".sock")

    def job(self) -> JobRecord:
        """Return the summary of the job. Raises ConsoleError."""
        told = self._ask("", {})
        assert told is not None
        return self._record(told)

    def next_change(self) -> JobRecord | None:
        """Wait for a change, and return the summary of the job; None if there was none for a while. Raises
        ConsoleError."""
        told = self._ask("", {}, wait=True)
        return None if told is None else self._record(told)

    def _record(self, told: dict[str, Any]) -> JobRecord:
        where = self.path or f"{state.SCHEME}{self.node}/{self.uuid}"
        try:
            lost = told["state"] not in ENDED and not told["owner_lives"]
            return JobRecord(told, where, owner_lost=lost, proxied=self.proxied)
        except (KeyError, TypeError, ValueError):
            told_by = f"{self.node} answers something else about job {self.uuid} than a job"
            raise ConsoleError(told_by, "mesh version there and here: one of them may be older") from None

    def rows(self, what: str, **query: str) -> list[dict[str, Any]]:
        """All rows of ``tasks``, ``log`` or ``transitions``."""
        found: list[dict[str, Any]] = []
        key = "last" if what == "tasks" else "id"
        while True:
            told = self._ask(what, {**query, "after": str(found[-1][key] if found else -1)})
            if not told or not told[what]:
                return found
            found += told[what]

    def failures(self, limit: int) -> list[dict[str, Any]]:
        """The tasks that failed first; none if the node's version does not tell."""
        told = self._answered("failures", {"limit": str(limit)}, "")
        found: list[dict[str, Any]] = json.loads(told.body)["failures"] if told.status == 200 else []
        return found

    def _ask(self, what: str, query: dict[str, str], *, wait: bool = False) -> dict[str, Any] | None:
        told = self._answered(what, query, self.etag if wait else "")
        if told.status == 304:
            return None
        content: dict[str, Any] = json.loads(told.body)
        if told.status != 200:
            raise ConsoleError(str(content.get("error")), str(content.get("hint", "")))
        if wait:
            self.etag = told.headers.get("ETag", "")
        return content

    def _answered(self, what: str, query: dict[str, str], known: str) -> Answer:
        try:
            return self._answer(what, query, known)
        except AgentError as error:
            raise ConsoleError(error.message, error.hint or "mesh job show --at NODE asks another node") from None

    def _answer(self, what: str, query: dict[str, str], known: str) -> Answer:
        if self.path:
            if known:
                wait_for_change(self.path, known, _WAIT_S)
            if os.path.exists(self.path):
                return answer(self.path, what, query, known)
            raise ConsoleError(f"job {self.uuid} is not on this host any more", "mesh job show finds it")
        question = Question(self.uuid, what, query, known, _WAIT_S if known else 0.0)
        told, self.address = question.follow(self.address)
        return told


def source(settings: Settings, text: str, at: str = "") -> Source:
    """The object ``text``: on this host, on the node ``at``, or at the tracker's location. Raises ConsoleError."""
    if at:
        return _on(settings, text, at)
    try:
        path = find(settings, text)
        return Source(os.path.basename(path).removesuffix(SUFFIX), path)
    except ForeignJob:
        raise
    except ConsoleError as error:
        uuid = _moved_from_here(settings, text) or text
        if not is_uuid(uuid):
            raise ConsoleError(error.message, f"{error.hint}; a job elsewhere is named by its whole UUID") from None
    return _tracked(settings, uuid)


class Proxy:
    """Answers about jobs on other hosts, for browsers on this one (``mesh job serve``)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[str, str] = {}  # the last known place of each job

    def ask(self, uuid: str, what: str, query: dict[str, str], known: str, wait_s: float) -> Answer:
        """The answer of the node that has the object."""
        try:
            if uuid not in self._known:
                found = source(self._settings, uuid)
                if found.path:  # on a node of this host
                    if known:
                        wait_for_change(found.path, known, wait_s)
                    return answer(found.path, what, query, known)
                self._known[uuid] = found.address
            told, self._known[uuid] = Question(uuid, what, query, known, wait_s).follow(self._known[uuid])
            if told.status != 404:
                return told
        except (AgentError, ConsoleError) as error:
            told = refused(404, error.message, error.hint)
        self._known.pop(uuid, None)
        return told


def _moved_from_here(settings: Settings, text: str) -> str:
    """The UUID of a job that was moved away from this host and whose UUID begins with ``text``; "" if not unique."""
    try:
        names = os.listdir(directory_of(settings.state_dir))
    except OSError:
        return ""
    found = {name.removesuffix(".place") for name in names if name.endswith(".place") and name.startswith(text)}
    return found.pop() if len(found) == 1 and len(text) >= 4 else ""


def _tracked(settings: Settings, uuid: str) -> Source:
    holder = Holder(directory_of(settings.state_dir), login_name(settings))
    try:
        entry = holder.entry(uuid)
        if entry.place.state is State.DOUBT:  # a mesh job move was interrupted before the node's answer
            _trusted(settings, entry.address)
            ask_again(holder, uuid)
            entry = holder.entry(uuid)
        here = holder.readable(uuid)
    except StateError as error:
        raise ConsoleError(error.message, error.hint) from None
    if here:
        return Source(uuid, here)
    try:
        told = ask_cpa(settings, {"op": "state_locate", "uuid": uuid})
    except (AgentError, ConsoleError) as error:
        if not entry.address:
            raise
        _trusted(settings, entry.address)
        # the node to which this host sent it, which knows a later place
        try:
            return _found_at(Source(uuid, address=entry.address), "a CPA would know of a standby: mesh status")
        except ConsoleError:
            if isinstance(error, AgentError) and error.code == "invalid":
                raise error from None  # it was purged: neither a CPA nor that node knows of it
            raise
    node = str(told["url"]).removeprefix(state.SCHEME).partition("/")[0]
    if told["proxied"] and told["standby"] != node:
        return _proxied(settings, uuid, node, told)
    goes_on = f"mesh job resume {uuid} continues with its standby on {told['standby']}" if told["standby"] else ""
    found = _found_at(Source(uuid, address=address_of(settings, node, told["addresses"])), goes_on)
    if found.node != node:
        _mend(settings, found, node)
    return found


def _found_at(found: Source, goes_on: str) -> Source:
    """Follow an object from the node where it was last. ``goes_on``: the hint if it has a standby.

    Raises ConsoleError if it is not there.
    """
    uuid, last = found.uuid, found.node
    try:
        answered, found.address = Question(uuid).follow(found.address)
    except AgentError as error:
        raise ConsoleError(
            f"the object of job {uuid} cannot be read: it was on {last} last, and {error.message}",
            goes_on or "mesh status tells whether the node is up; the object has no standby",
        ) from None
    if answered.status == 404:
        there = found.node
        raise ConsoleError(
            f"the object of job {uuid} is gone: {there} had it last, and says that it is not there",
            goes_on or f"it had no standby: it was deleted on {there}, or with the disk of {there}",
        )
    return found


def _proxied(settings: Settings, uuid: str, login: str, told: Mapping[str, Any]) -> Source:
    """The copy of an object on the login processor ``login``, on the node that answers for it. Raises ConsoleError."""
    standby = str(told["standby"])
    found = Source(uuid, address=address_of(settings, standby, told["addresses"]), proxied=login)
    try:
        answered, found.address = Question(uuid).follow(found.address)
        why = f"its standby {standby} has no copy of it" if answered.status == 404 else ""
    except AgentError as error:
        why = f"its standby does not answer: {error.message}"
    if why:
        lost = f"if {login} is lost, mesh job resume {uuid} continues with its standby"
        raise ConsoleError(f"job {uuid} is on the login processor {login}, and {why}", f"ask on {login}; {lost}")
    return found


def purge_there(settings: Settings, found: Source) -> None:
    """Delete the object of an ended job on the node that has it. Raises ConsoleError."""
    try:
        found.job()  # finds the node that has the object now
        with connection.connect(found.address) as client:
            client.call({"op": "purge", "uuid": found.uuid})
    except AgentError as error:
        raise ConsoleError(error.message, error.hint or "mesh job show", exit_status=1) from None
    forget(settings, found.uuid, found.node)


def forget(settings: Settings, uuid: str, node: str) -> bool:
    """Tell the tracker that the object on ``node`` was deleted, and its standby to delete its copy. Returns False if no
    CPA answers.

    Without success, the tracker goes on naming ``node``, which says that the object is not there; a copy is deleted
    after a day.
    """
    try:
        told = ask_cpa(settings, {"op": "state_locate", "uuid": uuid})
        if told["url"] != state.url_on(node, uuid):
            return True  # the object that was deleted was not the job's any more
        if told["standby"]:
            _drop_copy(uuid, address_of(settings, told["standby"], told["addresses"]))
        ask_cpa(settings, {"op": "state_forget", "uuid": uuid, "node": node, "uid": os.geteuid()})
    except AgentError:
        return True  # it knows no such job, or not this node's address any more
    except ConsoleError:
        return False
    return True


def _drop_copy(uuid: str, address: str) -> None:
    with contextlib.suppress(AgentError), connection.connect(address) as client:
        client.call({"op": "drop", "uuid": uuid})


def _mend(settings: Settings, found: Source, tracked: str) -> None:
    """Report a move to the tracker again if the object is not where it says; an outdated report changes nothing."""
    job = found.job()
    with contextlib.suppress(AgentError, ConsoleError):
        report(settings, found.uuid, tracked, found.node, job.counter)


def _on(settings: Settings, text: str, at: str) -> Source:
    address = address_of(settings, at)
    try:
        with connection.connect(address) as client:
            held = [str(one) for one in client.call({"op": "held"})["jobs"]]
    except AgentError as error:
        raise ConsoleError(error.message, error.hint or "mesh status") from None
    found = [uuid for uuid in held if uuid.startswith(text)]
    if len(found) != 1 and not is_uuid(text):
        raise ConsoleError(f"{len(found)} jobs on {at} begin with {text[:60]!r}", "give the whole UUID")
    return Source(found[0] if len(found) == 1 else text, address=address)


def address_of(settings: Settings, node: str, told: Mapping[str, str] | None = None) -> str:
    """Return the address of a node's PCT; ``node`` may also be an address itself: ``tls://HOST:PORT/NODE``.

    The address is read from the database, or from what was read last, or from ``told``, the reply of a CPA: not every
    login processor can read the database. Raises ConsoleError.
    """
    if node.startswith(SCHEME):
        _trusted(settings, node)
        return node
    kept = os.path.join(directory_of(settings.state_dir), ".nodes")
    logins: set[str] = set()
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            nodes = viewer.read().nodes
        known = {one.name: one.address for one in nodes if one.address}
        logins = {one.name for one in nodes if one.role == "login"}
        with contextlib.suppress(OSError):
            new = f"{kept}.{os.urandom(4).hex()}"  # other commands write it at the same time
            try:
                with open(new, "w", encoding="utf-8") as file:
                    json.dump(known, file)
                os.replace(new, kept)
            except BaseException:  # the disk is full, for example
                os.unlink(new)
                raise
    except StoreError:
        try:
            with open(kept, encoding="utf-8") as file:
                known = json.load(file)
        except (OSError, ValueError):
            known = {}
    address = str(known.get(node) or (told or {}).get(node, ""))
    if address.startswith(UDP) or (node in logins and not address):
        raise ConsoleError(f"the job is on the login processor {node}, which nobody can connect to", "ask there")
    if not address:
        raise ConsoleError(f"no address of node {node!r} is known", "mesh status lists the nodes; tls://HOST:PORT/NODE")
    _trusted(settings, address)
    return address


def _trusted(settings: Settings, address: str) -> None:
    if not address.startswith(SCHEME):
        return
    if settings.system and os.geteuid():  # the login processor's certificate is root's
        trust.use_run(mesh_name(settings), settings.run_dir)
        connection.use(lambda node: pass_for(settings, node, os.geteuid()))
    else:
        trust.use_login(mesh_name(settings), settings.state_dir)


def pass_for(settings: Settings, node: str, uid: int) -> dict[str, str]:
    """What a node is shown for the user ``uid`` in system mode. Raises ConsoleError or AgentError."""
    told = ask_cpa(settings, {"op": "state_pass", "node": node, "uid": uid})
    return {"credential": str(told["credential"]), "mac": str(told["mac"])}


def report(settings: Settings, uuid: str, sender: str, receiver: str, counter: int, uid: int | None = None) -> bool:
    """Report to the tracker that the object (of the user ``uid``; the caller's) is on ``receiver`` now; return whether
    that was new to it.

    Raises ConsoleError or AgentError.
    """
    uid = os.geteuid() if uid is None else uid
    told = ask_cpa(settings, {"op": "state_register", "uuid": uuid, "node": receiver, "uid": uid})
    if not told["news"]:
        message = {"op": "state_moved", "uuid": uuid, "sender": sender, "receiver": receiver, "counter": counter}
        told = ask_cpa(settings, {**message, "uid": uid})
    return bool(told["news"])
