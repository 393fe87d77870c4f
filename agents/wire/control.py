"""Control payloads: JSON objects, parsed strictly and written compactly.

Python's JSON parser accepts more than JSON (NaN, 1e999, a key that appears twice, lone surrogates), and deep nesting
exhausts its recursion limit. All of these are refused here, before any key is used.

Only the C part of ``json`` is imported. Measured (``python -m tests.bench.handwork``): what a yod imports takes 23 ms,
30 ms with ``json``, a launch of one process 35 and 40 ms.
"""

from __future__ import annotations

from _json import encode_basestring, make_encoder, make_scanner

from agents.wire.errors import WireError
from agents.wire.frames import CONTROL, MAX_CONTROL, frame
from agents.wire.renames import OLD_NAMES, old_names

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    Message = Dict[str, Any]
else:
    Message = dict

MAX_DEPTH = 32


def _no_constant(text: str) -> Any:
    raise WireError(f"{text} is not a JSON number")


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


class _Strict:
    # The attributes that json.JSONDecoder passes to its scanner.
    strict = True
    object_hook = None
    object_pairs_hook = staticmethod(_unique)
    parse_float = staticmethod(_finite)
    parse_int = int
    parse_constant = staticmethod(_no_constant)
    memo: Dict[str, str] = {}


def _unknown(value: object) -> Any:
    raise ValueError(f"a {type(value).__name__} is nothing that JSON knows")


# The json package would import re, enum, functools and collections: 4 ms of a yod's run time (agents/link/lean.py).
_scan = make_scanner(_Strict)  # type: ignore[arg-type]
_write = make_encoder(None, _unknown, encode_basestring, None, ":", ",", False, False, False)
_BLANKS = " \t\n\r"


def _read(text: str) -> Any:
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = _scan(text, start)
    except StopIteration:
        raise WireError("no JSON: no value") from None
    except SystemError:  # the scanner finds the class of its error only if json.decoder is imported
        raise WireError("no JSON: a text that ends too soon, or is none") from None
    if text[end:].strip(_BLANKS):
        raise WireError("no JSON: more behind the value")
    return value


def decode(payload: bytes) -> Message:
    """Parse a control payload. Raises WireError unless it is exactly one strict JSON object."""
    try:
        text = payload.decode("utf-8")
        value = _read(text)
        if "\\u" in text:
            "".join(_write(value, 0)).encode("utf-8")  # fails for a lone surrogate, which has no UTF-8 form
    except WireError:
        raise
    except (UnicodeError, ValueError, RecursionError) as error:
        raise WireError(f"no JSON: {str(error)[:120]}") from None
    # fewer brackets than the limit cannot nest deeper than the limit
    if payload.count(b"[") + payload.count(b"{") > MAX_DEPTH:
        _check_nesting(value)
    if not isinstance(value, dict):
        raise WireError("a control frame holds one JSON object")
    return value


def _check_nesting(value: Any) -> None:
    # Check level by level with comprehensions: 2.7 million empty lists take 0.1 s, with recursion 0.6 s.
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inside = [member for one in level for member in (one.values() if type(one) is dict else one)]
        level = [member for member in inside if type(member) is dict or type(member) is list]
        if not level:
            return
    raise WireError(f"JSON nested deeper than {MAX_DEPTH}")


def encode(message: Message) -> bytes:
    """Encode a message as the payload of a control frame."""
    try:
        payload = "".join(_write(message, 0)).encode("utf-8")
    except (UnicodeError, ValueError, RecursionError) as error:
        raise WireError(f"a message that JSON cannot hold: {error}") from None
    if len(payload) > MAX_CONTROL:
        raise WireError(f"a message of {len(payload)} bytes is over the limit of {MAX_CONTROL}")
    return payload


def control(message: Message) -> bytes:
    """Encode a message as a complete control frame."""
    return frame(CONTROL, encode(old_names(message) if str(message.get("op")) in OLD_NAMES else message))


def to_text(data: bytes) -> str:
    """Bytes of the system (arguments, environment, paths) as text that JSON can carry, whatever the bytes are."""
    return data.decode("latin-1")


def to_bytes(text: str) -> bytes:
    """Convert text from :func:`to_text` back to bytes. Raises WireError if the text has another source."""
    try:
        return text.encode("latin-1")
    except UnicodeError:
        raise WireError("a byte string holds a character over 255") from None
