"""Read plain and correct command lines of `run` and `exec` without click, which takes longer than planning.

Everything else is left to click: help, unknown and abbreviated options, missing values, and unusual forms.
So each message about a command line comes from one place.
"""

from __future__ import annotations

from ompbind.cli.options.option import CommandLine, Given, Option, make_given

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def read_quickly(args: Sequence[str], options: Iterable[Option]) -> CommandLine | None:
    """Return the options and the command in the words after a verb; None if click has to read them."""
    by_name = _index(options)
    givens: list[Given] = []
    position = 0
    while position < len(args):
        word = args[position]
        is_end = word == "--"
        if is_end or not word.startswith("-"):
            words = tuple(args[position + is_end :])
            return CommandLine(givens=tuple(givens), words=words) if words else None
        read = _read_option(word, "".join(args[position + 1 : position + 2]), by_name)
        if read is None:
            return None
        given, used = read
        givens.append(given)
        position += used
    return None


def _index(options: Iterable[Option]) -> Mapping[str, tuple[Option, bool]]:
    """Return each option by all its names, and whether the name resets it."""
    by_name: dict[str, tuple[Option, bool]] = {}
    for option in options:
        by_name.update(dict.fromkeys(option.names, (option, False)))
        by_name[option.reset_name] = (option, True)
    return by_name


def _read_option(
    word: str, following: str, by_name: Mapping[str, tuple[Option, bool]]
) -> tuple[Given, int] | None:
    """Return an occurrence, and how many words it has: an option, and perhaps the word after it."""
    is_long = word.startswith("--")
    name, equals, attached = word.partition("=") if is_long else (word[:2], word[2:], word[2:])
    option, is_reset = by_name.get(name, (None, False))
    if option is None or (not is_long and "=" in word):
        return None
    value: str | bool | None
    used = 1
    if is_reset or option.flag:
        value = None if is_reset else True
        if equals:
            return None
    elif equals:
        value = attached
    elif option.bare is not None:
        value = option.bare
        if len(following) < 2 or not following.startswith("-"):
            return None
    else:
        value, used = following, 2
    if (value == "" and option.bare is None) or (used == 2 and following.startswith("-")):
        return None
    return make_given(option, value), used
