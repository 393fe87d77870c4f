"""The parts of the standard library that every yod needs, without the modules that they import.

``socket``, ``signal``, ``collections`` and ``enum`` cost a process 8 ms at its start, more than half of it for
enumerations of constants (docs/decisions/0011). This module uses the C modules beneath them.

Measured (``python -m tests.bench.handwork``): a launch of one process takes 31 ms with it and 42 ms without; what a yod
imports takes 22 and 30 ms, or 28 ms with only ``enum``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    import signal as signal
    import socket as socket
    from collections import deque as deque
    from enum import Enum as Enum
    from heapq import heappop as heappop
    from heapq import heappush as heappush
    from socket import socket as Socket
else:
    import _signal as signal
    import _socket as socket
    from _collections import deque
    from _heapq import heappop, heappush

    class Socket(socket.socket):
        """A socket that can be used with ``with``."""

        __slots__ = ()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.close()

        def accept(self):
            fd, address = self._accept()
            return Socket(self.family, self.type, self.proto, fileno=fd), address

    class _Enumeration(type):
        """Makes a member of every string in the body of a class."""

        def __new__(cls, name, bases, body):
            made = super().__new__(cls, name, bases, body)
            made.members = []
            for key, value in body.items():
                if key[0] != "_":
                    member = object.__new__(made)
                    member.name, member.value = key, value
                    setattr(made, key, member)
                    made.members.append(member)
            return made

        def __iter__(cls):
            return iter(cls.members)

        def __len__(cls):
            return len(cls.members)

    class Enum(metaclass=_Enumeration):
        """Like enum.Enum, for members without methods: compared by identity, with a name and a value."""

        def __repr__(self):
            return f"<{self!s}: {self.value!r}>"

        def __str__(self):
            return f"{type(self).__name__}.{self.name}"


__all__ = ["Enum", "Socket", "deque", "heappop", "heappush", "signal", "socket"]
