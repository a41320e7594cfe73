"""`Record`: frozen, keyword-only records with slots.

A Record is like `dataclass(frozen=True, slots=True, kw_only=True)`, and type checkers treat it as one. But
a dataclass of five fields takes about 0.3 ms to define, and starting a rank needs some fifty of them: that
takes as long as Python itself takes to start. Defining a Record takes a fiftieth of that (`make bench`
measures both).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache, cached_property, partial
from typing import Any, Literal, Self, dataclass_transform, get_args, get_origin

_set = object.__setattr__


class _RecordType(type):
    """Makes the annotated names of a class its slots, and keeps their defaults in the class."""

    fields: tuple[str, ...]
    field_set: frozenset[str]
    defaults: Mapping[str, object]

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _RecordType:
        annotate = body.get("__annotate_func__") or body.get("__annotate__")  # since Python 3.14
        fields = tuple(body.get("__annotations__") or (annotate(1) if annotate else ()))
        defaults = {field: body.pop(field) for field in fields if field in body}
        caches = any(isinstance(value, cached_property) for value in body.values())
        slots = (*fields, "__dict__") if caches else fields  # only a cached property needs a dictionary
        made = super().__new__(mcs, name, bases, {**body, "__slots__": slots, "__match_args__": ()})
        made.fields = fields
        made.field_set = frozenset(fields)
        made.defaults = defaults
        return made


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record(metaclass=_RecordType):
    """The base class of all records.

    Records are equal if they have the same class and equal fields, and hashable if all fields are. A subclass
    that must refuse some values overrides `check`.
    """

    def __init__(self, **values: Any) -> None:
        kind = type(self)
        if values.keys() != kind.field_set:
            values = {**kind.defaults, **values}
            if values.keys() != kind.field_set:
                wrong = kind.field_set ^ values.keys()
                raise TypeError(f"{kind.__name__}: missing or unknown: {', '.join(sorted(wrong))}")
        for name, value in values.items():
            _set(self, name, value)
        self.check()

    def check(self) -> None:
        """Raise an error if the fields contradict each other; called for each new record."""

    def check_types(self, hints: Mapping[str, str]) -> None:
        """Raise a TypeError that names the field, and its hint, if a value does not fit its annotation."""
        kind = type(self)
        for name, value in self.as_dict().items():
            default = kind.defaults.get(name)
            if value is default or (type(value) is type(default) and not isinstance(value, (str, tuple))):
                continue  # reading an annotation takes longer than making most records
            if not _fits(value, _read_annotation(kind, name)):
                hint = f" ({hints[name]})" if name in hints else ""
                raise TypeError(f"{name}={value!r} is not of type {kind.__annotations__[name]}{hint}")

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return type(self)(**{**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, in the order of their definition."""
        return {name: getattr(self, name) for name in type(self).fields}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(self) is type(other) and self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash((type(self), *self.as_dict().values()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"{type(self).__name__}({inside})"

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return partial(type(self), **self.as_dict()), ()


@cache
def _read_annotation(kind: type, name: str) -> Any:
    return eval(kind.__annotations__[name], vars(sys.modules[kind.__module__]))


def _fits(value: object, annotation: Any) -> bool:
    """Return whether a value fits an annotation of classes, literals, unions and tuples; True is no int."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        items = inner[:1] * len(value) if isinstance(value, tuple) and inner[-1] is ... else inner
        return isinstance(value, tuple) and len(value) == len(items) and all(map(_fits, value, items))
    if inner:
        return any(_fits(value, each) for each in inner)
    return type(value) is int if annotation is int else isinstance(value, annotation)
