"""Hints about a wrong value of an option: what was probably meant, or where the help is."""

from __future__ import annotations

from ompbind.cli.options.option import Given, Option
from ompbind.cli.suggestions import find_option, suggest_value

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def find_hint(given: Given, verb: str, words: Sequence[str], options: Mapping[str, Option]) -> str:
    """Return a hint for a wrong value: the word or the option that is meant, or the help of the verb.

    `words` are the words after the options, `options` are the options of the verb by name.
    """
    suggestion = _suggest(given, "".join(words[:1]), options)
    return suggestion or f"see '{_name_help(given.option, verb, options)}'"


def _name_help(option: Option, verb: str, options: Mapping[str, Option]) -> str:
    """Return the command that shows the help of an option."""
    has_short_help = any(known.is_everyday(verb) for known in options.values())
    is_left_out = has_short_help and not option.is_everyday(verb)
    return f"ompbind {verb} --help{'-all' if is_left_out else ''}"


def _suggest(given: Given, word: str, options: Mapping[str, Option]) -> str:
    """Return a hint for a wrong value: the word that is meant, or the option; "" if unknown.

    An option of another tool may have been read as a short option with a value: `-np` as `-n p`. `word` is
    the first word after the options.
    """
    known = [name for option in options.values() for name in option.names]
    meant = find_option(f"{given.option.names[0]}{given.value}", word, known)
    return (
        f"did you mean {meant}?"
        if meant
        else suggest_value(given.option.names[0], str(given.value), given.option.words)
    )
