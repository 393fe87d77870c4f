"""Cookies: 64 random bits that prove a right. Only digests are stored; cookies are never logged or displayed."""

from __future__ import annotations

import hashlib
import os
from _operator import _compare_digest as compare_digest  # that of hmac, which costs a CPA 2 ms


def make() -> str:
    return os.urandom(8).hex()


def digest(cookie: str) -> str:
    """The digest that is stored for a cookie."""
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()


def fits(cookie: object, stored: str) -> bool:
    """True if ``stored`` is the digest of ``cookie``; compared in constant time."""
    given = cookie if isinstance(cookie, str) else ""
    return compare_digest(digest(given), stored)
