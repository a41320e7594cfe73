"""Messages of ompbind itself on standard error, and text on standard output."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    # --version and usage errors do not need it, and it takes 7 ms to import
    from ompbind.planning.plan import Plan


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
    from ompbind.cli.terminal import read_screen  # late: most runs print no message

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
