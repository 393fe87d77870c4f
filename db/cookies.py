"""Cookies: 64 random bits that prove a right. Only digests are stored; cookies are never logged or displayed."""

from __future__ import annotations

import hashlib
import hmac
import os


def make() -> str:
    return os.urandom(8).hex()


def digest(cookie: str) -> str:
    """The digest that is stored for a cookie."""
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()


def fits(cookie: object, stored: str) -> bool:
    """True if ``stored`` is the digest of ``cookie``; compared in constant time."""
    given = cookie if isinstance(cookie, str) else ""
    return hmac.compare_digest(digest(given), stored)
