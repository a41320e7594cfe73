"""Clean foreign text for terminals: names of processes, commands, text of files and of ranks.

Each character that is not printable becomes "?". Escape sequences then have no effect. For names that are
misspelled, this module finds the similar one.
"""

import re
from collections.abc import Iterable

NAME_LIMIT = 200
"""The longest name of a process or a run that is shown, in characters."""


def clean_line(text: str) -> str:
    """Return text for one line: line ends and tabs become "?" too."""
    if text.isprintable():  # the usual case: there may be thousands of names
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def clean_lines(text: str) -> str:
    """Return text for several lines: spaces, tabs and line ends stay."""
    return "".join(character if character.isprintable() or character.isspace() else "?" for character in text)


def remove_escape_sequences(text: str) -> str:
    """Remove control sequences (colours, cursor), titles and links within a line, short escape sequences."""
    if "\x1b" not in text:
        return text
    return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(\x07|\x1b\\)|[ -/]*[0-~])", "", text)


def clean_name(name: str) -> str:
    """Return the name of a run or a process for one line, cut to NAME_LIMIT characters."""
    return clean_line(name[:NAME_LIMIT])


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return the most similar name, such as that of a preset, a key or a variable; "" if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 - door: loads difflib

    return next(iter(get_close_matches(name, list(known), 1)), "")
