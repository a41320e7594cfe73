"""Read plain and correct command lines of `run` and `exec` without click, which takes longer than planning.

Everything else is left to click: help, unknown and abbreviated options, missing values, and unusual forms.
So each message about a command line comes from one place.
"""

from __future__ import annotations

from ompbind.cli.options.option import CommandLine, Given, Option, make_given

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Sequence


def read_quickly(args: Sequence[str], options: Sequence[Option]) -> CommandLine | None:
    """Return the options and the command in the words after a verb; None if click has to read them."""
    givens: list[Given] = []
    position = 0
    while position < len(args):
        word = args[position]
        is_end = word == "--"
        if is_end or not word.startswith("-"):
            words = tuple(args[position + is_end :])
            return CommandLine(givens=tuple(givens), words=words) if words else None
        read = _read_option(word, "".join(args[position + 1 : position + 2]), options)
        if read is None:
            return None
        given, used = read
        givens.append(given)
        position += used
    return None


def _find_option(name: str, options: Sequence[Option]) -> tuple[Option | None, bool]:
    """Return the option with a name, None if there is none, and whether the name resets the option."""
    found = next((option for option in options if name in option.names), None)
    if found or not name.startswith("--no-"):
        return found, False
    return next((option for option in options if name == option.reset_name), None), True


def _read_option(word: str, following: str, options: Sequence[Option]) -> tuple[Given, int] | None:
    """Return an occurrence, and how many words it has: an option, and perhaps the word after it."""
    is_long = word.startswith("--")
    name, equals, attached = word.partition("=") if is_long else (word[:2], word[2:], word[2:])
    option, is_reset = _find_option(name, options)
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
