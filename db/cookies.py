"""Cookies: 64 random bits that prove a right. Only their digests are stored; never logged, never shown."""

from __future__ import annotations

import hashlib
import hmac
import os

NO_COOKIE = "0" * 16


def make() -> str:
    return os.urandom(8).hex()


def digest(cookie: str) -> str:
    """What is stored of it."""
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest()


def fits(cookie: object, stored: str) -> bool:
    """Whether a cookie is the one whose digest is stored, in a time that does not tell how nearly."""
    given = cookie if isinstance(cookie, str) else ""
    return hmac.compare_digest(digest(given), stored)
