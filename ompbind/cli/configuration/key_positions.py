"""Find the positions of keys in a valid TOML text: the parser of the standard library gives none.

The text is split into strings, words, comments and symbols. At the start of a statement these are the header
of a table or a key. From "=" to the end of the line, outside of all brackets, they are a value. Keys inside
of values (inline tables) are not found.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ompbind.record import Record

KeyPath: TypeAlias = tuple[str, ...]
"""A dotted key from the root of the document."""

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'  # strings over several lines
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\w-]+"
    r"|[\[\]{}=\n]",
    re.DOTALL,
)
_OPENING, _CLOSING = ("[", "{"), ("]", "}")


class KeyPosition(Record):
    """The line of a key, counted from 1, and its characters: the first, and one past the last."""

    line: int
    start: int
    stop: int


def find_positions(text: str) -> Mapping[KeyPath, KeyPosition]:
    """Return the position of each key and each table header that occurs once in a valid TOML text."""
    found = list(_find_keys(text))
    times = Counter(path for path, _, _ in found)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    positions = {}
    line = 0
    for path, start, stop in found:
        while line + 1 < len(starts) and starts[line + 1] <= start:
            line += 1
        if times[path] == 1:
            begin = starts[line]
            positions[path] = KeyPosition(line=line + 1, start=start - begin, stop=stop - begin)
    return positions


def _find_keys(text: str) -> Iterator[tuple[KeyPath, int, int]]:
    """Yield each key with its range of characters in the text."""
    table: KeyPath = ()
    words: list[re.Match[str]] = []
    depth, in_value = 0, False
    for token in _TOKEN.finditer(text):
        symbol = token[0]
        if in_value:
            depth += (symbol in _OPENING) - (symbol in _CLOSING)
            in_value = symbol != "\n" or depth > 0
        elif symbol in ("=", "]") and words:
            path = tuple(map(_decode, words))
            table, path = (path, path) if symbol == "]" else (table, table + path)
            yield path, words[0].start(), words[-1].end()
            words, in_value = [], symbol == "="
        elif symbol not in ("[", "]", "\n") and not symbol.startswith("#"):
            words.append(token)


def _decode(word: re.Match[str]) -> str:
    """Return a part of a key without its quotes and escapes."""
    text = word[0]
    return next(iter(tomllib.loads(f"{text} = 0"))) if text[0] in "\"'" else text
