"""Readers of the values of options: pure functions text → value, which raise OptionError or PositionError."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from typing import Any

from ompbind.commands.placeholders import NAMES, check
from ompbind.cpuset import join_words
from ompbind.errors import OptionError
from ompbind.report.text import clip
from ompbind.text import whole_number

_DIGITS = 9  # of a number at most: OpenMP reads numbers of 31 bits
_DECIMAL_DIGITS = 12  # of a decimal number at most
_UNITS_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_TIME = "".join(rf"(?:([0-9.]+){unit})?" for unit in _UNITS_S)


def one_of(words: Iterable[str], kind: str = "") -> Callable[[str], str]:
    """Return a reader of one of some words; `kind` says in errors what they are, as "a strategy"."""
    known = tuple(words)

    def read(text: str) -> str:
        if text in known:
            return text
        what = f"{kind}: write " if kind else ""
        raise OptionError(f"{_quote(text)} is not {what}{join_words(known, 'or')}")

    return read


def member(words: type[StrEnum], *, automatic: str = "") -> Callable[[str], Any]:
    """Return a reader of one member of an enum; the word `automatic` stands for None."""
    read_word = one_of((*filter(None, [automatic]), *map(str, words)))
    return lambda text: None if read_word(text) == automatic else words(text)


def count_or(*words: str) -> Callable[[str], int | str]:
    """Return a reader of a whole number of at least 1, or of one of some words."""

    def read(text: str) -> int | str:
        found = text if text in words else _read_number(text, 1)
        if found is None:
            wanted = f"{', '.join(words)} or a whole number of at least 1"
            raise OptionError(f"{_quote(text)} is wrong: write {wanted}")
        return found

    return read


def at_least(minimum: int, most: int | None = None) -> Callable[[str], int]:
    """Return a reader of a whole number that is not below a minimum, and not above `most`."""

    def read(text: str) -> int:
        number = _read_number(text, minimum)
        if number is None or (most is not None and number > most):
            limit = f"of at least {minimum}" if most is None else f"from {minimum} to {most:,}"
            raise OptionError(f"{_quote(text)} is not a whole number {limit}")
        return number

    return read


def read_seconds(text: str) -> float:
    """Read a time: seconds, or numbers with the units d, h, m and s in this order (90, 1.5h, 1h30m)."""
    found = re.fullmatch(_TIME, f"{text}s" if _is_decimal(text) else text)
    numbers = [number or "0" for number in found.groups()] if found and text else [""]
    if not all(map(_is_decimal, numbers)):
        hint = "write seconds, or for example 90s, 1h30m or 1.5h"
        longer = (f"{text}{unit}" for unit in _UNITS_S)
        meant = next((f"write {each}" for each in longer if re.fullmatch(_TIME, each)), "")
        raise OptionError(f"{_quote(text)} is not a time: {hint}", hint=meant)
    return sum(float(number) * unit_s for number, unit_s in zip(numbers, _UNITS_S.values(), strict=True))


def _is_decimal(text: str) -> bool:
    whole, _, fraction = text.partition(".")
    return whole_number(whole + fraction, 10**_DECIMAL_DIGITS) is not None


def names_of(kind: str) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of comma-separated names; `kind` says what they name, as "a library"."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(filter(None, (name.strip() for name in text.split(","))))
        if not names:
            raise OptionError(f"the name of {kind} is missing")
        return names

    return read


def name_of(kind: str, placeholders: Collection[str] = ()) -> Callable[[str], str]:
    """Return a reader of a name, which is not empty; `kind` says what it names, as "a file".

    The name may have `placeholders`, which are filled later.
    """

    def read(text: str) -> str:
        _check_given(text, f"the name of {kind}")
        if placeholders:
            check(text, placeholders)
        return text

    return read


ALL_GROUPS = "all"  # the value of --group for all groups of the configuration files


def read_group_name(text: str) -> str:
    """Read the name of a group: it is a part of file names, and of placeholders."""
    rest = text.translate(str.maketrans("", "", "-_"))
    if not (rest.isascii() and rest.isalnum() and text[0].isalpha()) or text == ALL_GROUPS:
        hint = "use letters, digits, - and _; a letter first"
        raise OptionError(f"{text!r} cannot name a group", hint=hint)
    return text


def read_group_names(text: str) -> tuple[str, ...]:
    """Read the names of groups of a configuration file, "all" for all."""
    return tuple(name if name == ALL_GROUPS else read_group_name(name) for name in text.split(","))


def read_wrapper_words(text: str) -> tuple[str, ...]:
    """Read the words of a command line as a shell splits them; placeholders stay."""
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        hint = "the text is split as by a shell: close each quote, and double a backslash"
        raise OptionError(f"{_quote(text)} has an open quote, or ends with a backslash", hint=hint) from None
    _check_given(" ".join(words), "the program")
    for word in words:
        check(word, NAMES)
    return words


def _check_given(text: str, what: str) -> None:
    if not text:
        raise OptionError(f"{what} is missing")
    if "\0" in text:
        raise OptionError(f"{what} cannot contain a null character")


def _read_number(text: str, minimum: int) -> int | None:
    """Return the number in a text; None if it is below a minimum, or no ASCII digits."""
    number = whole_number(text, 10**_DIGITS)
    if number is None and text and not text.strip("0123456789"):
        raise OptionError(f"{_quote(text)} is too large; the limit is {'9' * _DIGITS}")
    return number if number is not None and number >= minimum else None


def _quote(text: str) -> str:
    return repr(clip(text))
