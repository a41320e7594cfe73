"""Foreign text: names of processes, commands, text of files and of ranks.

A number has a limit, so that no text can crash a reader. For terminals, each character that is not printable
becomes "?". Escape sequences then have no effect. For names that are misspelled, this module finds the
similar one. Secret values are masked in all that is written.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

NAME_LIMIT = 200  # the longest name of a process or a run that is shown, in characters

_DIGITS = 20  # of a number of 64 bits; int() raises ValueError for 4,300 digits

_FIRST_LETTERS = 4  # with fewer letters, `--all` would mean `--allow-partial`
_TYPO_LETTERS = 5  # of both names together
_ALMOST_EQUAL = 0.85  # measured: with 0.8, `port` would mean `report`; with 0.75, `stop` would mean `topo`


def whole_number(text: str | None, limit: int = 1 << 62) -> int | None:
    """Return the number in a text of a user, a file, a variable or another process.

    None for anything but ASCII digits ("²" is a digit for Python), and for numbers from `limit` on.
    """
    if not (text and text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        return None
    return number if (number := int(text)) < limit else None


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


MASKED = "***"

SECRET_WORDS = ("TOKEN", "KEY", "APIKEY", "PAT", "SECRET", "CREDENTIALS")
SECRET_ENDS = ("PASSWORD", "PASSWD")
"""A name is secret if a word of it, between "_", "-" or ".", is or ends with one of these, in any case."""

_WORD = rf"(?:(?<![^\W_])(?:{'|'.join(SECRET_WORDS)})|{'|'.join(SECRET_ENDS)})(?![^\W_])"
_NAME = rf"""(?<![\w.-]) (?=[\w.-]*?{_WORD}) [\w.-]++"""
_SECRETS = rf"""(?isx)
    ^ (?:[\w-]++=)? {_NAME} = (.+)                              # a whole word, or the text of an option
    | (?<=') {_NAME} = ([^']+) | (?<=") {_NAME} = ([^"]+)       # 'NAME=VALUE' in a text
    | {_NAME} = ("[^"]*"? | '[^']*'? | [^\s'"]+)
    | (?=-) {_NAME} \s++ ("[^"]*"? | '[^']*'? | [^\s'"-][^\s'"]*)
    | (?:^ | (?<=['"])) (?:authorization | {_NAME}) : \s* ([^'"]+)  # a header of HTTP
    | \b bearer \s++ ([^\s'"]+)
    | // ([^\s/@'"]+) @                                         # user:password of a URL
"""
"""Where secret values are; each alternative has one group, the value."""


def is_secret(name: str) -> bool:
    """Return whether the name of a variable or of an option says that its value is secret."""
    return bool(re.fullmatch(_NAME, name, re.IGNORECASE | re.VERBOSE))


def mask_text(text: str, *, same_length: bool = False) -> str:
    """Return a word of a command, or any text, with "***" for secret values, or as many "*" as they have."""
    if not any(mark in text.upper() for mark in (*SECRET_WORDS, "PASSW", "//", "BEARER", "AUTHORIZATION")):
        return text

    def mask(found: re.Match[str]) -> str:
        start, stop = found.span(found.lastindex or 0)
        stars = "*" * (stop - start) if same_length else MASKED
        return f"{text[found.start() : start]}{stars}{text[stop : found.end()]}"

    return re.sub(_SECRETS, mask, text)


def mask_value(name: str, value: str) -> str:
    """Return the value of a variable with "***" for what is secret, also in lists of NAME=VALUE."""
    return MASKED if is_secret(name) else mask_text(value)


def mask_words(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a command line with "***" for secret values, also for "--password VALUE"."""
    masked, is_value = list[str](), False
    for word in words:
        masked.append(MASKED if is_value and not word.startswith("-") else mask_text(word))
        is_value = word.startswith("-") and is_secret(word)
    return tuple(masked)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return the name that a misspelled name means, such as that of a preset; "" if none is similar.

    A wrong hint is worse than none. Similar are: one letter is wrong, missing or too many, or two are
    swapped; the first letters of a name; and with more differences, a long name that is almost equal.
    """
    names = list(known)
    typo = next((other for other in names if _is_typo(name, other)), "")
    if typo:
        return typo
    begun = [other for other in names if other.startswith(name) and len(name) >= _FIRST_LETTERS]
    if begun:
        shortest = min(begun, key=len)
        return shortest if all(other.startswith(shortest) for other in begun) else ""
    from difflib import get_close_matches  # noqa: PLC0415 - door: a wrong name

    return next(iter(get_close_matches(name, names, 1, _ALMOST_EQUAL)), "")


def _is_typo(name: str, meant: str) -> bool:
    """Return whether one letter is wrong, missing or too many, or two are swapped; `l9` is not `l3`."""
    if len(name) + len(meant) < _TYPO_LETTERS:
        return False
    start = next((i for i, pair in enumerate(zip(name, meant, strict=False)) if pair[0] != pair[1]), None)
    if start is None:
        return abs(len(name) - len(meant)) <= 1
    name, meant = name[start:], meant[start:]
    return name[1:] == meant[1:] or name[1:] == meant or name == meant[1:] or name == meant[1::-1] + meant[2:]


class Severity(StrEnum):
    """The severity of an issue, worst first.

    An error breaks a binding, a warning may do so but could not be measured, a note may be intended.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"

    @property
    def json_level(self) -> str:
        """The word in JSON of schema version 1, where an error is called a problem."""
        return "problem" if self is Severity.ERROR else self.value


def worst(severities: Iterable[Severity]) -> Severity:
    """Return the worst of some severities; OK if there are none."""
    return min(severities, key=list(Severity).index, default=Severity.OK)
