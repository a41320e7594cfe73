"""The texts of --vary: `smt=1,2` → the key of an option and its values; several of them → all combinations.

Values are separated by commas, or by semicolons if the text has any: `mask=0,2;1,3`. A semicolon at the end
separates nothing, so that a single value can have commas. Pure: which keys and values exist is decided where
options are read.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import TypeAlias

from ompbind.errors import PositionError, RequestError
from ompbind.record import Record

LIMIT = 256
"""Combinations at most: each has to win against all others, which takes more rounds the more there are."""

_HINT = "write OPTION=VALUE,VALUE, as in --vary smt=1,2"

Choices: TypeAlias = tuple[tuple[str, str], ...]
"""The options of one candidate: (key, text) pairs in the order of --vary."""

Variations: TypeAlias = Iterable[tuple[str, tuple[str, ...]]]
"""All --vary: the key of an option, and the texts of its values."""


class VariedText(Record):
    """One value in a text of --vary: its key, its own text, and where that is."""

    key: str
    text: str
    span: tuple[int, int]


def parse_variation(text: str) -> tuple[VariedText, ...]:
    """Return the values in a text of --vary.

    Raises PositionError for a missing key or value, and for a value that is there twice.
    """
    key, equals, values = text.partition("=")
    if not (key.strip() and equals):
        wrong = f"{key.strip()} has no values" if key.strip() else "the option is missing"
        raise PositionError(wrong, text=text, span=(0, len(key)), hint=_HINT)
    found = tuple(
        VariedText(key=key.strip(), text=value, span=span)
        for value, span in _split(values, len(key) + len(equals))
    )
    seen: set[str] = set()
    for value in found:
        if not value.text:
            raise PositionError(f"a value of {value.key} is missing", text=text, span=value.span, hint=_HINT)
        if value.text in seen:
            message = f"{value.key} has the value {value.text} twice"
            raise PositionError(message, text=text, span=value.span, hint="write each value once")
        seen.add(value.text)
    return found


def _split(values: str, start: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each value without spaces around it, and its range in the whole text; `start` is the first."""
    separator = ";" if ";" in values else ","
    parts = values.split(separator)
    if separator == ";" and not parts[-1].strip():
        parts.pop()
    for part in parts:
        value = part.strip()
        first = start + len(part) - len(part.lstrip())
        yield value, (first, first + len(value))
        start += len(part) + len(separator)


def make_combinations(variations: Variations) -> tuple[Choices, ...]:
    """Return the product of all --vary, the last one varying fastest; () without any.

    Raises RequestError for more than LIMIT combinations.
    """
    axes: Sequence[list[tuple[str, str]]] = [[(key, text) for text in texts] for key, texts in variations]
    number = 1
    for axis in axes:
        number *= len(axis)
    if number > LIMIT:
        hint = "vary fewer options at once, or fewer values"
        raise RequestError(f"--vary: {number} combinations are more than the limit of {LIMIT}", hint=hint)
    return tuple(product(*axes)) if axes else ()
