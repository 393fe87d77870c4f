"""C library functions with their argument types."""

from __future__ import annotations

import ctypes
from ctypes import addressof, get_errno
from ctypes import c_char as Char
from ctypes import c_int as Int
from ctypes import c_long as Long
from ctypes import c_ulong as Unsigned
from ctypes import c_void_p as Pointer

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any

_here = ctypes.CDLL(None, use_errno=True)


def function(name: str, result: Any, *arguments: Any) -> Any:
    """The function ``name`` of the libraries in this process; errno is kept for :func:`get_errno`. Raises OSError."""
    try:
        found = _here[name]
    except AttributeError as error:
        raise OSError(str(error)) from None
    found.restype = result
    found.argtypes = arguments
    return found


__all__ = ["Char", "Int", "Long", "Pointer", "Unsigned", "addressof", "function", "get_errno"]
