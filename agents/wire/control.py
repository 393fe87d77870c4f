"""Control payloads: JSON objects, read strictly and written compactly.

Python's reader takes more than JSON (NaN, 1e999, twice the same key, lone surrogates) and can be
made to recurse; every such text is refused here, before anybody looks at a key.
"""

from __future__ import annotations

from _json import encode_basestring, make_encoder, make_scanner

from agents.wire.errors import WireError
from agents.wire.frames import CONTROL, MAX_CONTROL, frame
from agents.wire.renames import OLD_NAMES, old_names

TYPE_CHECKING = False  # typing itself is not loaded: it would cost every yod 3 ms
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
    # What json.JSONDecoder hands to the scanner beneath it.
    strict = True
    object_hook = None
    object_pairs_hook = staticmethod(_unique)
    parse_float = staticmethod(_finite)
    parse_int = int
    parse_constant = staticmethod(_no_constant)
    memo: Dict[str, str] = {}


def _unknown(value: object) -> Any:
    raise ValueError(f"a {type(value).__name__} is nothing that JSON knows")


# The json package would load re, enum, functools and collections: 4 ms of a yod's life (agents/link/lean.py).
_scan = make_scanner(_Strict)  # type: ignore[arg-type]
_write = make_encoder(None, _unknown, encode_basestring, None, ":", ",", False, False, False)
_BLANKS = " \t\n\r"


def _read(text: str) -> Any:
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = _scan(text, start)
    except StopIteration:
        raise WireError("no JSON: no value") from None
    except SystemError:  # the scanner finds the class of its error only where json.decoder is loaded
        raise WireError("no JSON: a text that ends too soon, or is none") from None
    if text[end:].strip(_BLANKS):
        raise WireError("no JSON: more behind the value")
    return value


def decode(payload: bytes) -> Message:
    """The object in a control payload. WireError for anything but one strict JSON object."""
    try:
        text = payload.decode("utf-8")
        value = _read(text)
        if "\\u" in text:
            "".join(_write(value, 0)).encode("utf-8")  # a lone surrogate has no UTF-8
    except WireError:
        raise
    except (UnicodeError, ValueError, RecursionError) as error:
        raise WireError(f"no JSON: {str(error)[:120]}") from None
    if payload.count(b"[") + payload.count(b"{") > MAX_DEPTH:  # or nothing can be nested deeper
        _check_nesting(value)
    if not isinstance(value, dict):
        raise WireError("a control frame holds one JSON object")
    return value


def _check_nesting(value: Any) -> None:
    # Level by level, in comprehensions: 2.7 million empty lists take a tenth of a second, by recursion six tenths.
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inside = [member for one in level for member in (one.values() if type(one) is dict else one)]
        level = [member for member in inside if type(member) is dict or type(member) is list]
        if not level:
            return
    raise WireError(f"JSON nested deeper than {MAX_DEPTH}")


def encode(message: Message) -> bytes:
    """The payload of a control frame."""
    try:
        payload = "".join(_write(message, 0)).encode("utf-8")
    except (UnicodeError, ValueError, RecursionError) as error:
        raise WireError(f"a message that JSON cannot hold: {error}") from None
    if len(payload) > MAX_CONTROL:
        raise WireError(f"a message of {len(payload)} bytes is over the limit of {MAX_CONTROL}")
    return payload


def control(message: Message) -> bytes:
    """A whole control frame."""
    return frame(CONTROL, encode(old_names(message) if str(message.get("op")) in OLD_NAMES else message))


def to_text(data: bytes) -> str:
    """Bytes of the system (arguments, environment, paths) as JSON text, whatever they hold."""
    return data.decode("latin-1")


def to_bytes(text: str) -> bytes:
    """The inverse of :func:`to_text`. WireError when the text never came from it."""
    try:
        return text.encode("latin-1")
    except UnicodeError:
        raise WireError("a byte string holds a character over 255") from None
