"""Options as environment variables: `OMPBIND_<NAME>`."""

from __future__ import annotations

from ompbind.cli.options.option import Given, Option, Precedence, Source
from ompbind.cli.options.values import FALSE_WORDS, TRUE_WORDS
from ompbind.errors import OptionError

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def make_variable_givens(options: Iterable[Option], env: Mapping[str, str]) -> Iterator[Given]:
    """Yield the options that are given as variables; an empty variable counts as not set.

    A variable of a repeatable option has words as in a shell. Raises OptionError for a wrong flag.
    """
    for option in options:
        text = env.get(option.variable, "")
        if text:
            source = Source(level=Precedence.VARIABLE, name=option.variable)
            for value in _read_values(option, text):
                yield Given(option=option, value=value, source=source)


def _read_values(option: Option, text: str) -> list[str | bool | None]:
    """Return what a variable gives: texts of values, True or False for a flag, None for a reset."""
    word = text.strip().lower()
    if option.flag:
        if word not in TRUE_WORDS + FALSE_WORDS:
            raise OptionError(f"{option.variable}: {text!r} is not 1 (yes) or 0 (no)")
        return [word in TRUE_WORDS]
    is_number = option.number and word.isdigit()
    if option.bare is not None and word in TRUE_WORDS + FALSE_WORDS and not is_number:
        return [option.bare if word in TRUE_WORDS else None]
    return list(_split(option, text)) if option.repeatable else [text]


def _split(option: Option, text: str) -> list[str]:
    import shlex  # late: few variables have several words

    try:
        return shlex.split(text)
    except ValueError as error:
        raise OptionError(f"{option.variable}: {error}", hint="close each quote") from None
