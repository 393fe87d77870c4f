"""Carrying objects from the mesh of a batch job to their user's own directory, which outlives it, and back."""

from __future__ import annotations

import os
import sqlite3
import time

from agents.objects.holder import ARRIVED, PART, SENT, STANDBY
from redmesh.state import (
    OTHER,
    SUFFIX,
    UNSURE,
    StateBusy,
    StateError,
    StateObject,
    give_lock,
    is_uuid,
    sync_directory,
    take_lock,
)

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

#: Seconds to wait, for all objects together, for processes that use an object; and between attempts.
_PATIENCE_S, _LOOK_S = 5.0, 0.05
_TWO = "another state of this job is {}: tasks may have run twice"


def has_objects(directory: str) -> bool:
    """True if an object or a copy of one is somewhere below a directory, or may be, where it cannot be read."""
    unread: List[OSError] = []
    found = (name.partition(SUFFIX) for _, _, names in os.walk(directory, onerror=unread.append) for name in names)
    there = any(suffix and is_uuid(uuid) for uuid, suffix, _ in found)
    return there or not all(isinstance(error, FileNotFoundError) for error in unread)


def carry_all(directory: str, target: str, why: str) -> Tuple[List[str], List[str]]:
    """Carry every object that is live below ``directory`` (STATE/jobs), and every standby copy, since the host of its
    object may be lost. No process owns one any more.

    Returns the UUIDs that were carried, and why others were not. These stay where they are.
    """
    carried: List[str] = []
    refused: List[str] = []
    until = time.monotonic() + _PATIENCE_S

    def unread(error: OSError) -> None:
        refused.append(f"{error.filename}: {error.strerror}")

    for place, _, names in os.walk(directory, onerror=unread):
        for name in sorted(names):
            if name.endswith((SUFFIX + SENT, SUFFIX + ARRIVED)):
                refused.append(f"{name}: it is between two nodes")
            elif name.endswith((SUFFIX, SUFFIX + STANDBY)) and is_uuid(name.partition(SUFFIX)[0]):
                try:
                    kept = os.path.basename(carry(os.path.join(place, name), target, why, until))
                    carried.append(kept[: -len(SUFFIX)] if kept.endswith(SUFFIX) else kept)
                except (StateError, OSError, sqlite3.Error, ValueError, TypeError) as error:
                    refused.append(f"{name}: {error}")  # one damaged object keeps no other from being carried
    return carried, refused


def carry(path: str, target: str, why: str, until: Optional[float] = None) -> str:
    """Move an object without an owner to the directory ``target``; its log says ``why``. Returns its new path.

    Of two states of one job the later one has the name. With ``until`` the other one is kept beside it, as
    ``UUID.job.other-N``, unless the later one contains it. A process that uses the object there is waited for until
    that monotonic time. Without ``until`` an object that is not the later one is refused. Raises StateError if a
    process owns or reads the object, OSError, and what SQLite raises.

    A standby copy stays as it was copied, so that the object itself contains it, whichever of the two comes first.
    """
    job = _opened(path, until or 0.0)  # the lock: of two that want it, one gets it
    try:
        place = os.path.join(target, os.path.basename(path).replace(SUFFIX + STANDBY, SUFFIX))
        try:
            there = _There(place, until or 0.0)
        except StateError as error:
            if until is None:
                raise
            place = _kept_beside(job, place, why, error.message, until)
        else:
            try:
                place = _settled(job, place, there.job, why, until)
            finally:
                there.close()
        os.unlink(path)
    finally:
        job.close()
    return place


def _settled(job: StateObject, place: str, there: Optional[StateObject], why: str, until: Optional[float]) -> str:
    """Copy ``job`` to ``place``, or beside it if the object ``there`` is a later state. Returns where it is."""
    if there is None:
        return _copied(job, place, why, until)
    if _age(there) < _age(job):
        if not job.contains(there):
            beside = _free(place)
            _note(job, _TWO.format(beside))
            _copy(place, beside)
        return _copied(job, place, why, until)
    if there.contains(job):
        # It was carried before, by a process that was killed before it deleted this file, or one of the two is a copy.
        if not _is_copy(job):
            _note(there, why)
        return place
    if until is None:
        raise StateError(f"{place} has a later state of it", "mesh job show")
    beside = _kept_beside(job, place, why, "it is a later state", until)
    _note(there, _TWO.format(beside))
    return beside


def _kept_beside(job: StateObject, place: str, why: str, reason: str, until: float) -> str:
    beside = _free(place)
    _note(job, f"kept beside {place}: {reason}")
    return _copied(job, beside, why, until)


def _copied(job: StateObject, place: str, why: str, until: Optional[float]) -> str:
    if not _is_copy(job):
        _note(job, why)
    if not _sealed(job, until or 0.0):
        raise StateError(f"job {job.uuid} cannot be moved: a process reads it", "try again")
    if _is_copy(job):
        job.mark_unsure()
    _copy(job.path, place)
    return place


class _There:
    """Holds a name in the user's directory: nobody else carries to it, resumes its object or changes it meanwhile.

    ``job`` is the object of that name. Raises StateBusy if a process uses it after ``until``.
    """

    def __init__(self, place: str, until: float) -> None:
        self._place = place
        self._lock = -1
        self.job: Optional[StateObject] = None
        while True:
            try:
                if self._try(until):
                    return
            except StateBusy:
                if time.monotonic() >= until:
                    raise
            time.sleep(_LOOK_S)  # poll: an flock does not report that another process gave it up

    def _try(self, until: float) -> bool:
        if os.path.lexists(self._place):
            job = StateObject(self._place)
            # What is in files beside it would be taken for a part of the file that gets its name.
            if not _sealed(job, until):
                job.close()
                raise StateBusy(f"a process reads {self._place}", "try again")
            self.job = job
            return True
        self._lock = take_lock(self._place)
        if os.path.lexists(self._place):  # it came meanwhile
            self.close()
            return False
        return True

    def close(self) -> None:
        if self.job is not None:
            self.job.close()
        elif self._lock >= 0:
            give_lock(self._place, self._lock)


def _opened(path: str, until: float) -> StateObject:
    """Open an object, after the end of its owner or of the process that wrote the copy. Raises StateBusy."""
    while True:
        try:
            return StateObject(path)
        except StateBusy:
            if time.monotonic() >= until:
                raise
        time.sleep(_LOOK_S)  # poll: the same


def _sealed(job: StateObject, until: float) -> bool:
    while not job.seal():
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_S)  # poll: SQLite does not report the end of a reader
    return True


def _note(job: StateObject, text: str) -> None:
    try:
        job.log(text)
    except StateError:
        pass  # it is full


def _free(place: str) -> str:
    """Create the file for another state of the object at ``place``."""
    number = 1
    while True:
        try:
            os.close(os.open(f"{place}{OTHER}{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            return f"{place}{OTHER}{number}"
        except FileExistsError:
            number += 1


def _is_copy(job: StateObject) -> bool:
    return job.path.endswith(STANDBY)


def _age(job: StateObject) -> Tuple[int, int, bool]:
    sure = not (_is_copy(job) or job.meta(UNSURE))
    return int(job.meta("counter") or 0), int(job.meta("commits") or 0), sure


def _copy(path: str, place: str) -> None:
    aside = f"{place}{PART}{os.getpid()}"
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(path, "rb") as source, open(fd, "wb") as copy:
            while data := source.read(1 << 20):
                copy.write(data)
            copy.flush()
            os.fsync(fd)
        os.rename(aside, place)
    except OSError:
        for name in (aside, place if OTHER in os.path.basename(place) else ""):
            try:
                os.unlink(name)
            except OSError:
                pass
        raise
    sync_directory(os.path.dirname(place))
