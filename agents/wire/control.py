"""Control payloads: JSON objects, read strictly and written compactly.

Python's reader takes more than JSON (NaN, 1e999, twice the same key, lone surrogates) and can be
made to recurse; every such text is refused here, before anybody looks at a key.
"""

from __future__ import annotations

import json

from agents.wire.errors import WireError
from agents.wire.frames import CONTROL, MAX_CONTROL, frame

TYPE_CHECKING = False  # typing itself is not loaded: it would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    Message = Dict[str, Any]
else:
    Message = dict

MAX_DEPTH = 32


def _no_constant(text: str) -> Any:
    raise WireError(f"{text} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise WireError(f"{text[:20]} is out of range")
    return value


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise WireError("an object names a key twice")
    return members


_reader = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
_writer = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False)


def decode(payload: bytes) -> Message:
    """The object in a control payload. WireError for anything but one strict JSON object."""
    try:
        text = payload.decode("utf-8")
        value = _reader.decode(text)
        if "\\u" in text:
            _writer.encode(value).encode("utf-8")  # a lone surrogate has no UTF-8
    except WireError:
        raise
    except (UnicodeError, ValueError, RecursionError) as error:
        raise WireError(f"no JSON: {str(error)[:120]}") from None
    _check_nesting(value, 0)
    if not isinstance(value, dict):
        raise WireError("a control frame holds one JSON object")
    return value


def _check_nesting(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise WireError(f"JSON nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        for member in value.values():
            if isinstance(member, (dict, list)):
                _check_nesting(member, depth + 1)
    elif isinstance(value, list):
        for member in value:
            if isinstance(member, (dict, list)):
                _check_nesting(member, depth + 1)


def encode(message: Message) -> bytes:
    """The payload of a control frame."""
    try:
        payload = _writer.encode(message).encode("utf-8")
    except (UnicodeError, ValueError) as error:
        raise WireError(f"a message that JSON cannot hold: {error}") from None
    if len(payload) > MAX_CONTROL:
        raise WireError(f"a message of {len(payload)} bytes is over the limit of {MAX_CONTROL}")
    return payload


def control(message: Message) -> bytes:
    """A whole control frame."""
    return frame(CONTROL, encode(message))


def to_text(data: bytes) -> str:
    """Bytes of the system (arguments, environment, paths) as JSON text, whatever they hold."""
    return data.decode("latin-1")


def to_bytes(text: str) -> bytes:
    """The inverse of :func:`to_text`. WireError when the text never came from it."""
    try:
        return text.encode("latin-1")
    except UnicodeError:
        raise WireError("a byte string holds a character over 255") from None
