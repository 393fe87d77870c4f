"""Runs functions for ``redmesh.Executor`` in a process of the user's own Python, driven by a worker of the job.

Calls arrive on standard input; results go to the descriptor in the first argument. Only this process and the user's
program unpickle. Standard library and cloudpickle, Python 3.9.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Dict, Tuple

CALL = struct.Struct("!II")  # number, length; then data
#: Number, whether it failed, began, ended, lengths; then the line that says why it failed, and data.
RESULT = struct.Struct("!IBddII")
#: How many unpickled functions are kept: a map sends the same one with every chunk.
_KEPT = 64
_LONGEST = 200  # characters of the line that says why a call failed


def _loaded(data: bytes, functions: Dict[bytes, Any]) -> Tuple[Any, Any, Any, bool]:
    function, arguments, keywords, chunk = pickle.loads(data)
    if function not in functions:
        if len(functions) >= _KEPT:
            functions.clear()
        functions[function] = pickle.loads(function)
    return functions[function], pickle.loads(arguments), pickle.loads(keywords) if keywords else {}, chunk


def _called(data: bytes, functions: Dict[bytes, Any]) -> bytes:
    function, arguments, keywords, chunk = _loaded(data, functions)
    result = [function(*one) for one in arguments] if chunk else function(*arguments, **keywords)
    try:
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except Exception:  # a local class or function, which only cloudpickle can send
        import cloudpickle  # type: ignore[import-untyped]

        return bytes(cloudpickle.dumps(result))


def _failed(error: BaseException) -> bytes:
    import traceback

    import cloudpickle

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    error.__traceback__ = None
    try:
        data = bytes(cloudpickle.dumps((error, text)))
        pickle.loads(data)  # some exceptions can be pickled but not unpickled
        return data
    except Exception:
        return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))


def _exactly(source: BinaryIO, count: int) -> bytes:
    data = source.read(count)
    if len(data) < count:
        raise EOFError
    return data


def main(sink: int, minor: str, version: str, path: str) -> int:
    """Serve until standard input ends; returns the exit status."""
    source = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # so that a function that reads its standard input does not read the calls
    os.close(null)
    os.set_inheritable(sink, False)
    sys.path[:] = [*path.split("\n"), *(entry for entry in sys.path if entry not in path.split("\n"))]
    wrong = _differences(minor, version)
    functions: Dict[bytes, Any] = {}
    try:
        while True:
            number, length = CALL.unpack(_exactly(source, CALL.size))
            data = _exactly(source, length)
            began, failed, why = time.time(), 0, b""
            try:
                if wrong:
                    raise RuntimeError(wrong)
                told = _called(data, functions)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                told, failed = _failed(error), 1
                why = f"{type(error).__name__}: {error}"[:_LONGEST].encode("utf-8", "replace")
            head = RESULT.pack(number, failed, began, time.time(), len(why), len(told))
            view = memoryview(head + why + told)
            while view:
                view = view[os.write(sink, view) :]
    except EOFError:
        return 0


def _differences(minor: str, version: str) -> str:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != minor:
        return f"{sys.executable} on {os.uname().nodename} is Python {here}, the program's is {minor}"
    try:
        import cloudpickle
    except ImportError:
        return f"{sys.executable} on {os.uname().nodename} has no cloudpickle: install version {version}"
    if cloudpickle.__version__ != version:
        return f"{os.uname().nodename} has cloudpickle {cloudpickle.__version__}, the program {version}"
    return ""


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:5]))
