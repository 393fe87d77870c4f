"""SHA-256 and HMAC-SHA256 without OpenSSL: to load it costs an agent 3 ms before its first beat, which is sealed.

Whoever seals much (an RCA) calls :func:`hasten`.
"""

from __future__ import annotations

from _operator import _compare_digest

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from hashlib import sha256 as sha256
    from typing import Any
else:
    try:
        from _sha256 import sha256
    except ImportError:
        try:
            from _sha2 import sha256  # Python 3.12 and later
        except ImportError:  # a Python that has OpenSSL's alone
            from hashlib import sha256

_BLOCK = 64  # bytes that SHA-256 takes at a time
_INNER, _OUTER = bytes(x ^ 0x36 for x in range(256)), bytes(x ^ 0x5C for x in range(256))
_fast: Any = None  # OpenSSL's, which is twice as fast


def hasten() -> None:
    """Seal with OpenSSL from now on, where Python has it."""
    global _fast
    try:
        from _hashlib import hmac_digest
    except ImportError:
        return
    _fast = hmac_digest


def seal(key: bytes, data: bytes) -> bytes:
    """HMAC-SHA256 (RFC 2104) of ``data`` under ``key``, which is no longer than a block."""
    if _fast is not None:
        return bytes(_fast(key, data, "sha256"))
    padded = key.ljust(_BLOCK, b"\0")
    if len(padded) > _BLOCK:
        raise ValueError("a key longer than a block of SHA-256")
    inner = sha256(padded.translate(_INNER) + data).digest()
    return sha256(padded.translate(_OUTER) + inner).digest()


def same(one: bytes, other: bytes) -> bool:
    """Whether two seals are the same, in a time that does not tell where they differ."""
    return _compare_digest(one, other)


__all__ = ["hasten", "same", "seal", "sha256"]
