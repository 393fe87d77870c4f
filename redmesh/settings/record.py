"""Records: classes with typed, documented fields, which have a default, a smallest value and a form in JSON.

``dataclasses`` would do the same, but its import takes twice as long as the start of Python itself (40 ms and 17 ms of
CPU on a busy machine).

A class that is declared with ``slots=True`` can be instantiated. Without it, the class is a group of fields, from which
several records may inherit, as they can from any number of groups.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Mapping, NoReturn, Optional, Tuple, Type, TypeVar

    from typing_extensions import Self, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_options: object) -> object:
        """Does nothing: only type checkers use it."""
        return lambda decorated: decorated


#: Kinds of fields, in the words of error messages.
TEXT, PATH, COUNT, SECONDS, NAMES = "text", "path", "whole number", "number", "list of names"
COUNT_OR_AUTO = 'whole number or "auto"'
HOSTS = "list of names or tables"
FLAG, NUMBERS, TEXT_OR_NUMBERS = "true or false", "list of whole numbers", "text or list of whole numbers"
RECORDS, TABLE, TABLES = "list of tables with known keys", "table", "list of tables"

_REQUIRED: Any = object()
#: The kind of a field by its annotation, if none is given.
_KINDS = {
    "str": TEXT, "int": COUNT, "float": SECONDS, "bool": FLAG, "optional[str]": TEXT, "tuple[str, ...]": NAMES,
    "tuple[int, ...]": NUMBERS, "tuple[dict[str, any], ...]": TABLES, "optional[dict[str, any]]": TABLE,
}  # fmt: skip


class MissingFields(ValueError):
    """A recorded file has no value for the fields ``names``."""

    def __init__(self, names: Tuple[str, ...]) -> None:
        super().__init__(", ".join(map(repr, names)))
        self.names = names


class Field:
    """The declaration of a field."""

    __slots__ = ("default", "in_job", "kind", "least", "meaning", "name", "record", "required")

    def __init__(
        self, default: object, meaning: str, kind: str, least: int, in_job: bool, record: Optional[Type[Record]]
    ) -> None:
        self.name = ""
        self.required = default is _REQUIRED
        self.default = None if self.required else default
        self.meaning = meaning
        self.kind = kind or (RECORDS if record is not None else "")
        self.least = least  # the smallest value of a number
        self.in_job = in_job  # False: a setting that a mesh in a batch job ignores
        self.record = record  # the class of each item of a list


def field(
    meaning: str,
    *,
    default: T = _REQUIRED,
    kind: str = "",
    least: int = 0,
    in_job: bool = True,
    record: Optional[Type[Record]] = None,
) -> T:
    """Declare a field; without ``default`` it is required. ``kind`` follows from the annotation if it is not given."""
    return Field(default, meaning, kind, least, in_job, record)  # type: ignore[return-value]


class RecordType(type):
    """Collects the fields of a class, with those of its bases in front, into ``FIELDS``."""

    FIELDS: Dict[str, Field]
    __slots__: Tuple[str, ...]

    def __new__(cls, name: str, bases: Tuple[type, ...], body: Dict[str, Any], *, slots: bool = False) -> RecordType:
        fields: Dict[str, Field] = {}
        for base in bases:
            fields.update(base.FIELDS)  # type: ignore[attr-defined]
        for key in [key for key, value in body.items() if isinstance(value, Field)]:
            fields[key] = body.pop(key)
            fields[key].name = key
            fields[key].kind = fields[key].kind or _KINDS[body["__annotations__"][key].lower()]
        body["FIELDS"] = fields
        others = [key for key in body.get("__annotations__", ()) if key not in fields]
        body["__slots__"] = (*fields, *others) if slots else ()
        return super().__new__(cls, name, bases, body)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Record(metaclass=RecordType):
    """An immutable record. Its class has a field for each declaration by :func:`field`."""

    def __init__(self, **values: object) -> None:
        self._fill(values)

    def _fill(self, values: Mapping[str, object]) -> None:
        """Set each field to its value or its default. Raises MissingFields, or TypeError for an unknown name."""
        fields = type(self).FIELDS
        for name in values:
            if name not in fields:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
        missing = tuple(name for name, one in fields.items() if one.required and name not in values)
        if missing:
            raise MissingFields(missing)
        for name, one in fields.items():
            object.__setattr__(self, name, values.get(name, one.default))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} does not change: {name}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.values_of(type(self)) == other.values_of(type(self))

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.values_of(type(self)).items())})"

    def values_of(self, group: RecordType) -> Dict[str, Any]:
        """The values of the fields of ``group``, which is this class or one of its bases."""
        return {name: getattr(self, name) for name in group.FIELDS}

    def replace(self, **values: object) -> Self:
        """A copy with other ``values`` in some fields."""
        return type(self)(**{**self.values_of(type(self)), **values})

    def to_wire(self, always: RecordType) -> Dict[str, object]:
        """The record for JSON: required fields, those of the group ``always``, and those that differ from their
        default."""
        wire = {}
        for name, one in type(self).FIELDS.items():
            value = getattr(self, name)
            if one.required or name in always.FIELDS or value != one.default:
                wire[name] = _plain(value)
        return wire

    @classmethod
    def from_wire(cls, found: object) -> Self:
        """The record from JSON; its texts become those of the system (redmesh/byte_text.py). Null stands for the
        default, and keys without a field are ignored.

        Raises ValueError: MissingFields, or what is wrong with which value.
        """
        if not isinstance(found, dict):
            raise ValueError("it holds no JSON object")
        values: Dict[str, object] = {}
        for name, one in cls.FIELDS.items():
            raw = found.get(name)
            if raw is not None:
                values[name] = _read(one, raw)
            elif one.required and one.kind == TEXT and name in found:
                values[name] = ""
        return cls(**values)


class NoGroup(Record):
    """The group without fields."""


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.to_wire(NoGroup) if isinstance(value, Record) else value


def _read(one: Field, raw: Any) -> object:
    try:
        return _READERS[one.kind](raw) if one.record is None else tuple(map(one.record.from_wire, raw))
    except MissingFields:
        raise
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{one.name} must be a {one.kind}, not {raw!r:.40}") from None


def _text(raw: Any) -> Any:
    """A text of JSON, or whatever it holds, as the system has it."""
    from redmesh.byte_text import each_to_system  # only who reads a file needs it

    return each_to_system(raw)


_READERS: Dict[str, Callable[[Any], object]] = {
    TEXT: lambda raw: _text(str(raw)),
    PATH: lambda raw: _text(str(raw)),
    COUNT: int,
    SECONDS: float,
    FLAG: bool,
    NAMES: lambda raw: tuple([_text(str(one)) for one in raw]),
    NUMBERS: lambda raw: tuple(map(int, raw)),
    TEXT_OR_NUMBERS: lambda raw: _text(raw) if isinstance(raw, str) else tuple(map(int, raw)),
    TABLE: lambda raw: _text(dict(raw)),
    TABLES: lambda raw: tuple([_text(dict(one)) for one in raw]),
}
