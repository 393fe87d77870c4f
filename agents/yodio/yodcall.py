"""Runs functions for ``redmesh.Executor`` in a process of the user's own Python, driven by a worker of the job.

Calls arrive on standard input; results go to the descriptor in the first argument. The worker takes calls back that
have not begun (yodbegun.py). Only this process and the user's program unpickle. Standard library and cloudpickle,
Python 3.9.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Dict, List, Tuple

    from agents.yodio.yodbegun import Begun
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH leaves it out
    from yodbegun import Begun

CALL = struct.Struct("!II")  # number, length; then data
#: Bytes that are read at once.
_BUFFER = 64 << 10
#: Number (0: the process is ready, or its initializer has failed), whether it failed, began, ended, lengths; then the
#: line that says why it failed, and data.
RESULT = struct.Struct("!IBddII")
#: How many unpickled functions are kept: a map sends the same one with every chunk.
_KEPT = 64
_LONGEST = 200  # characters of the line that says why a call failed


class _Unpickler(pickle.Unpickler):
    """Notes the global variables of each function that was sent by value, as cloudpickle sends those of the program."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.namespaces: List[Dict[str, Any]] = []

    def find_class(self, module: str, name: str) -> Any:
        """As :class:`pickle.Unpickler`."""
        found = super().find_class(module, name)
        if name != "_make_function" or not module.startswith("cloudpickle"):
            return found

        def make(*words: Any) -> Any:
            function = found(*words)
            self.namespaces.append(function.__globals__)
            return function

        return make


class _Functions:
    """The functions of calls, unpickled once, with the global variables that the initializer has set.

    cloudpickle gives the functions of each pickle a namespace of their own: without this, no call would see what the
    initializer of the same program has set.
    """

    def __init__(self) -> None:
        self._kept: Dict[bytes, Any] = {}
        self._variables: Dict[str, Dict[str, Any]] = {}  # by module

    def loads(self, data: bytes) -> Any:
        """Unpickle data of a call."""
        if not self._variables:
            return pickle.loads(data)
        unpickler = _Unpickler(data)
        value = unpickler.load()
        for namespace in unpickler.namespaces:
            namespace.update(self._variables.get(str(namespace.get("__name__")), {}))
        return value

    def loaded(self, data: bytes) -> Tuple[Any, Any, Any, bool]:
        """Unpickle a call: its function, arguments, keywords, and whether it is a chunk of calls."""
        function, arguments, keywords, chunk = pickle.loads(data)
        if function not in self._kept:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[function] = self.loads(function)
        return self._kept[function], self.loads(arguments), self.loads(keywords) if keywords else {}, chunk

    def initialize(self, data: bytes) -> bytes:
        """Call the initializer, if there is one."""
        if not data:
            return b""
        unpickler = _Unpickler(data)
        initializer, arguments = unpickler.load()
        initializer(*arguments)
        for namespace in unpickler.namespaces:
            variables = self._variables.setdefault(str(namespace.get("__name__")), {})
            for name, value in namespace.items():
                if not (name.startswith("__") or isinstance(value, (type, types.FunctionType, types.ModuleType))):
                    variables[name] = value
        return b""


def _called(data: bytes, functions: _Functions) -> bytes:
    function, arguments, keywords, chunk = functions.loaded(data)
    result = [function(*one) for one in arguments] if chunk else function(*arguments, **keywords)
    try:
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except Exception:  # a local class or function, which only cloudpickle can send
        import cloudpickle  # type: ignore[import-untyped]

        return bytes(cloudpickle.dumps(result))


def _failed(error: BaseException) -> bytes:
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    error.__traceback__ = None
    try:
        import cloudpickle  # a node that has none says so

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


def main(sink: int, minor: str, version: str, path: str, most: int, page: int, initializer: int) -> int:
    """Serve until standard input ends, or ``most`` calls have ended (0: any number); returns the exit status.

    ``page``: the descriptor of the page of :class:`Begun`. ``initializer``: that of a file with what is called before
    the first call, or -1.
    """
    source = os.fdopen(os.dup(0), "rb", _BUFFER)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # so that a function that reads its standard input does not read the calls
    os.close(null)
    os.set_inheritable(sink, False)
    begun = Begun(page)
    os.close(page)
    sys.path[:] = [*path.split("\n"), *(entry for entry in sys.path if entry not in path.split("\n"))]
    wrong = _differences(minor, version)
    functions = _Functions()

    def serve(number: int, function: Any, *given: Any) -> bool:
        began, failed, why = time.time(), 0, b""
        try:
            if wrong and number:
                raise RuntimeError(wrong)
            told = function(*given)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            told, failed = _failed(error), 1
            why = f"{type(error).__name__}: {error}"[:_LONGEST].encode("utf-8", "replace")
        head = RESULT.pack(number, failed, began, time.time(), len(why), len(told))
        view = memoryview(head + why + told)
        while view:
            view = view[os.write(sink, view) :]
        return not failed

    content = b""
    if initializer >= 0:
        with open(initializer, "rb") as file:
            file.seek(0)  # the process before this one has read it too
            content = b"" if wrong else file.read()
    if not serve(0, functions.initialize, content):
        return 1
    try:
        left = most
        while True:
            number, length = CALL.unpack(_exactly(source, CALL.size))
            data = _exactly(source, length)
            if not begun.begin():
                continue
            serve(number, _called, data, functions)
            left -= 1
            if not left:
                break
    except EOFError:
        pass
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
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], *map(int, sys.argv[5:8])))
