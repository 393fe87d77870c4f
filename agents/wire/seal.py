"""SHA-256 and HMAC-SHA256 without OpenSSL, whose import delays an agent's first beat, which is sealed, by 3 ms.

A process that seals often (an RCA) calls :func:`hasten`.

Measured (``python -m tests.bench.handwork``): what a host's keeper and PCT import takes 30 ms with it, 34 ms without.
"""

from __future__ import annotations

from _operator import _compare_digest

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from hashlib import sha256 as sha256
    from typing import Any
else:
    try:
        from _sha256 import sha256
    except ImportError:
        try:
            from _sha2 import sha256  # Python 3.12 and later
        except ImportError:  # this Python has SHA-256 only through OpenSSL
            from hashlib import sha256

_BLOCK = 64  # the block size of SHA-256 in bytes
_INNER, _OUTER = bytes(x ^ 0x36 for x in range(256)), bytes(x ^ 0x5C for x in range(256))
_fast: Any = None  # OpenSSL's function, which is twice as fast


def hasten() -> None:
    """Use OpenSSL from now on, if this Python has it."""
    global _fast
    try:
        from _hashlib import hmac_digest
    except ImportError:
        return
    _fast = hmac_digest


def seal(key: bytes, data: bytes) -> bytes:
    """HMAC-SHA256 (RFC 2104) of ``data``; ValueError if ``key`` is longer than a block."""
    if len(key) > _BLOCK:
        raise ValueError("a key longer than a block of SHA-256")
    if _fast is not None:
        return bytes(_fast(key, data, "sha256"))
    padded = key.ljust(_BLOCK, b"\0")
    inner = sha256(padded.translate(_INNER) + data).digest()
    return sha256(padded.translate(_OUTER) + inner).digest()


def same(one: bytes, other: bytes) -> bool:
    """Compare two seals in constant time."""
    return _compare_digest(one, other)


__all__ = ["hasten", "same", "seal", "sha256"]
