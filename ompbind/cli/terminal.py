"""What a terminal can show: its size, colours and box characters."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from typing import TextIO

    # `read_screen` imports it
    from ompbind.report.text import Screen

NARROW = 40  # the least width of a line, in characters, that texts are made for


def read_screen(stream: TextIO | None = None) -> Screen:
    """Read what a standard file shows: its size, colours and box characters; None is standard output.

    Anything but a terminal has the usual size and no colours; boxes need UTF-8.
    """
    from ompbind.report.text import PIPE, Screen  # late: starting ranks does not need it

    stream = stream or sys.stdout
    try:
        width, height = os.get_terminal_size(stream.fileno())
    except (AttributeError, OSError, ValueError):  # the stream is None, or no terminal, or closed
        width, height = 0, 0
    draws = has_box_characters(getattr(stream, "encoding", None))
    return Screen(
        width=max(width or PIPE.width, NARROW),
        height=height or PIPE.height,
        styled=supports_colours(stream),
        draws=draws,
    )


def has_box_characters(encoding: str | None) -> bool:
    """Return whether an encoding has the characters that boxes are drawn with."""
    return (encoding or "").lower().replace("-", "") == "utf8"


def supports_colours(stream: TextIO | None) -> bool:
    """Return whether a standard file is a terminal with colours, and the user has not disabled them."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return wanted and stream is not None and stream.isatty()
