"""Messages of ompbind itself on standard error, and what the terminal can show."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    # --version and usage errors need none of these, which take 7 ms to import
    from ompbind.planning.plan import Plan
    from ompbind.report.text import Screen

NARROW = 40  # the least width of a line, in characters, that texts are made for


def write_stderr(text: str) -> None:
    """Write text to standard error; if nothing reads it, ranks and exit codes are not affected."""
    try:
        _write(sys.stderr, text)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def write_stdout(text: str) -> None:
    """Write text to standard output."""
    _write(sys.stdout, text)


def _write(stream: TextIO | None, text: str) -> None:
    """Write text and the end of the line; the stream is None if it was closed when ompbind started."""
    if stream is not None:
        stream.write(f"{text}\n")
        stream.flush()


def print_message(line: str) -> None:
    """Write one message to standard error, with the name of ompbind before it."""
    write_stderr(render_message(line))


def render_message(line: str) -> str:
    """Return a message with the name of ompbind before it, wrapped."""
    from ompbind.report.text import render_paragraph  # late: most runs print no message

    return render_paragraph("ompbind", line, read_message_width())


def read_message_width() -> int:
    """Return how many characters a line of a message on standard error may have."""
    return read_screen(sys.stderr).text_width


def print_warnings(plan: Plan, codes: Sequence[str] = ()) -> None:
    """Print the notes of a plan that a user should read before ranks start; with codes, only these."""
    for note in plan.notes:
        if note.warning and (not codes or note.code in codes):
            print_message(f"warning: {note.text}")


def print_changed_variables(before: Mapping[str, str], changed: Mapping[str, str | None]) -> None:
    """Print which inherited variables are changed or cleared for ranks; None stands for cleared."""
    if not changed:
        return
    cleared = [f"{name}={before[name]}" for name, after in changed.items() if after is None]
    replaced = [
        f"{name}={before[name]} (now {after})" for name, after in changed.items() if after is not None
    ]
    parts = [f"cleared {', '.join(cleared)}"] if cleared else []
    parts += [f"replaced {', '.join(replaced)}"] if replaced else []
    print_message(
        f"inherited variables that conflict with the plan: {'; '.join(parts)} (--keep-env keeps them)"
    )


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
