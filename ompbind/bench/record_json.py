"""Records to JSON values and back: fields by name, tuples as arrays, words of enums as text.

The types of the fields decide how a value is read. Fields that a newer version has added are ignored, and
fields that an older version did not have get their defaults.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ompbind.record import Record

R = TypeVar("R", bound=Record)


def make_json(value: object) -> object:
    """Return what `json` writes for a record, or for a value of one of its fields."""
    if isinstance(value, Record):
        return {name: make_json(field) for name, field in value.as_dict().items()}
    if isinstance(value, tuple):
        return [make_json(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def make_record(kind: type[R], value: object) -> R:
    """Return the record that was written as JSON; raises ValueError that names the wrong field."""
    if not isinstance(value, dict):
        raise ValueError(f"{kind.__name__} is no object")
    hints = _read_hints(kind)
    missing = [name for name in kind.fields if name not in value and name not in kind.defaults]
    if missing:
        raise ValueError(f"{kind.__name__} has no {', '.join(missing)}")
    return kind(
        **{name: _read_field(kind, name, hints[name], value[name]) for name in kind.fields if name in value}
    )


@cache
def _read_hints(kind: type[Record]) -> dict[str, Any]:
    return get_type_hints(kind)


def _read_field(kind: type[Record], name: str, hint: Any, value: object) -> object:
    try:
        return _read_value(hint, value)
    except ValueError as error:
        raise ValueError(f"{kind.__name__}.{name}: {error}") from None


def _read_value(hint: Any, value: object) -> object:
    """Return a value of the type that a field has; raises ValueError for a value of another type."""
    if get_origin(hint) is UnionType:
        if value is None:
            return None
        (hint,) = (choice for choice in get_args(hint) if choice is not NoneType)
    if get_origin(hint) is tuple and isinstance(value, list):
        return _read_items(get_args(hint), value)
    if isinstance(hint, type) and issubclass(hint, Record):
        return make_record(hint, value)
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(value, str):
        return hint(value)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ValueError(f"unexpected value {value!r}")
    return value


def _read_items(hints: Sequence[Any], items: Sequence[object]) -> tuple[object, ...]:
    """Return the items of a tuple: of one type in any number (X, ...), or one item of each type."""
    if hints[-1] is Ellipsis:
        hints = [hints[0]] * len(items)
    if len(hints) != len(items):
        raise ValueError(f"{len(items)} values in place of {len(hints)}")
    return tuple(_read_value(hint, item) for hint, item in zip(hints, items, strict=True))
