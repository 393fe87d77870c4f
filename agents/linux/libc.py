"""C library functions through the C module beneath ``ctypes``, which saves an agent's start 2 ms."""

from __future__ import annotations

from _ctypes import dlopen, dlsym

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from ctypes import addressof as addressof
    from ctypes import c_char as Char
    from ctypes import c_int as Int
    from ctypes import c_long as Long
    from ctypes import c_ulong as Unsigned
    from ctypes import c_void_p as Pointer
    from ctypes import get_errno as get_errno
    from typing import Any

    _Function: Any
else:
    from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, _SimpleCData, addressof, get_errno

    class Char(_SimpleCData):
        """A char."""

        _type_ = "c"

    class Int(_SimpleCData):
        """An int."""

        _type_ = "i"

    class Long(_SimpleCData):
        """A long."""

        _type_ = "l"

    class Unsigned(_SimpleCData):
        """An unsigned long."""

        _type_ = "L"

    class Pointer(_SimpleCData):
        """A void *."""

        _type_ = "P"

    class _Function(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
        _restype_ = Int


_here = dlopen(None, 0)  # type: ignore[arg-type]


def function(name: str, result: Any, *arguments: Any) -> Any:
    """The function ``name`` of the libraries in this process; errno is kept for :func:`get_errno`. Raises OSError."""
    found: Any = _Function(dlsym(_here, name))
    found.restype = result
    found.argtypes = arguments
    return found


__all__ = ["Char", "Int", "Long", "Pointer", "Unsigned", "addressof", "function", "get_errno"]
