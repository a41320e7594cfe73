"""What ompbind itself says, lines on standard error that begin with its name, and what a terminal shows."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:  # --version and errors of usage need none of them, which take 7 ms to import
    from ompbind.planning.plan import Plan
    from ompbind.registry.claims import Registry
    from ompbind.report.text import Screen

NARROW = 40  # characters in a line that text may count on, however narrow the terminal


def tell(text: str) -> None:
    """Write text on standard error, if anybody is there to read it; ranks and exit codes matter more."""
    try:
        click.echo(text, err=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def say(line: str) -> None:
    """Say one thing on standard error."""
    tell(make_message(line))


def make_message(line: str) -> str:
    """Return one thing to say, as it is written."""
    from ompbind.report.text import render_paragraph  # late: most runs have nothing to say

    return render_paragraph("ompbind", line)


def say_notes(plan: "Plan") -> None:
    """Say those notes of a plan that a user should hear of before ranks start."""
    for note in plan.notes:
        if note.warning:
            say(f"warning: {note.text}")


def say_registry(registry: "Registry", *, verbose: bool = False) -> None:
    """Say what kept a plan from being made and registered among the others; the rest only with -v."""
    for text in (registry.delay, registry.trouble if verbose else ""):
        if text:
            say(text)


def say_changed(before: Mapping[str, str], changed: Mapping[str, str | None]) -> None:
    """Say which inherited variables the ranks will not see as they are."""
    if not changed:
        return
    cleared = [f"{name}={before[name]}" for name, after in changed.items() if after is None]
    replaced = [f"{name}={before[name]} (now {now})" for name, now in changed.items() if now is not None]
    parts = [f"cleared {', '.join(cleared)}"] if cleared else []
    parts += [f"replaced {', '.join(replaced)}"] if replaced else []
    say(f"inherited variables that would defeat the placement: {'; '.join(parts)} (--keep-env leaves them)")


def read_screen() -> "Screen":
    """Find out what standard output shows: how wide it is, and whether it shows colours and draws boxes.

    What is no terminal has the usual width and no colours; boxes can be drawn in UTF-8 alone.
    """
    from ompbind.report.text import WIDTH, Screen  # late: ranks start without it

    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        width = 0
    draws = draws_boxes(sys.stdout.encoding)
    return Screen(width=max(width or WIDTH, NARROW), styled=shows_colours(sys.stdout), draws=draws)


def draws_boxes(encoding: str | None) -> bool:
    """Tell whether an encoding has characters of which boxes are drawn."""
    return (encoding or "").lower().replace("-", "") == "utf8"


def shows_colours(stream: TextIO | None) -> bool:
    """Tell whether a standard file is a terminal that shows, and is meant to show, more than plain text."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return wanted and stream is not None and stream.isatty()
