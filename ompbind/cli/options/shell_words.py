"""Split a command line into words, as a shell does."""

from __future__ import annotations

import shlex

from ompbind.errors import PositionError


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text; raises PositionError for an open quote and a backslash at the end."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        at = _find_unclosed(text)
        message = "nothing follows the backslash" if text[at] == "\\" else "a quote is not closed"
        hint = "the text is split as by a shell: close each quote, and double a backslash"
        raise PositionError(message, text=text, span=(at, len(text)), hint=hint) from None


def _find_unclosed(text: str) -> int:
    """Return the index of the quote that is not closed, or of the backslash at the end."""
    quote, at, is_escaped = "", 0, False
    for i, character in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif character == "\\" and quote != "'":
            is_escaped = True
            at = at if quote else i
        elif not quote and character in "'\"":
            quote, at = character, i
        elif character == quote:
            quote = ""
    return at
