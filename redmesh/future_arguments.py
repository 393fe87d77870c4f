"""Futures as arguments of calls: a call waits for them, and gets their results (docs/python.md)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

#: Containers in which futures are found. Subclasses are left as they are: nothing says how to make another one.
_CONTAINERS = (list, tuple, set, frozenset, dict)


def futures_in(value: object) -> list[Future[Any]]:
    """The futures among arguments, also in lists, tuples, sets and dictionaries of them; each once."""
    found: dict[Future[Any], None] = {}
    seen: set[int] = set()  # containers: one may contain itself, or stand in many places
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Future):
            found[one] = None
        elif type(one) in _CONTAINERS and id(one) not in seen:
            seen.add(id(one))
            left.extend(one.values() if type(one) is dict else one)  # type: ignore[arg-type]
    return list(found)


def with_results(value: Any) -> Any:
    """Arguments with the results of futures in their places. The futures have succeeded. Raises TypeError for a result
    that a set cannot hold, and RecursionError."""
    return _replaced(value, {}) if futures_in(value) else value


def _replaced(value: Any, made: dict[int, Any]) -> Any:
    """``made``: the containers that were made, by the ids of those that they replace."""
    if isinstance(value, Future):
        return value.result()
    kind = type(value)
    if kind not in _CONTAINERS:
        return value
    if id(value) in made:
        return made[id(value)]
    if kind is list:
        new: list[Any] = []
        made[id(value)] = new
        new.extend(_replaced(one, made) for one in value)
    elif kind is dict:
        told: dict[Any, Any] = {}
        made[id(value)] = told
        told.update((key, _replaced(one, made)) for key, one in value.items())
    else:
        made[id(value)] = kind([_replaced(one, made) for one in value])
    return made[id(value)]


class Arguments:
    """The arguments of a call that wait for futures."""

    def __init__(self, args: Any, kwargs: Any, futures: list[Future[Any]]) -> None:
        self._values: Any = (args, kwargs)
        self._futures = futures
        self._left = len(futures)
        self._lock = threading.Lock()

    def when_known(self, ready: Callable[[Any, Any], None], lost: Callable[[Future[Any]], None]) -> None:
        """Call ``ready`` with the arguments once all futures have results, or ``lost`` with the first one that has
        none: in the thread in which that future ends. If the results cannot be put into their places, ``lost`` is
        called with a future that has this error."""

        def on_done(future: Future[Any]) -> None:
            failed = future.cancelled() or future.exception() is not None
            with self._lock:
                self._left -= 1
                values = self._values
                if values is None or not (failed or self._left == 0):
                    return
                self._values = None  # a future keeps what is called at its end
            if not failed:
                try:
                    args, kwargs = with_results(values)
                except Exception as error:  # the thread that ends a future only logs it, and the call would never end
                    future = Future()
                    future.set_exception(error)
                else:
                    ready(args, kwargs)
                    return
            _in_turn(lambda: lost(future))

        for future in self._futures:
            future.add_done_callback(on_done)


class _Turns(threading.local):
    """What is left to be done in this thread."""

    left: deque[Callable[[], None]] | None = None


_turns = _Turns()


def _in_turn(action: Callable[[], None]) -> None:
    """Do it, after what is being done in this thread: the end of one future ends others, which may be a long chain."""
    if _turns.left is not None:
        _turns.left.append(action)
        return
    _turns.left = deque([action])
    try:
        while _turns.left:
            _turns.left.popleft()()
    finally:
        _turns.left = None
