"""What ompbind itself says while ranks run: lines on standard error that begin with its name."""

import os
from collections.abc import Sequence

import click

from ompbind.openmp import Inherited
from ompbind.placement import Plan


def tell(text: str) -> None:
    """Write text on standard error, if anybody is there to read it; ranks and exit codes matter more."""
    try:
        click.echo(text, err=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def say(line: str) -> None:
    """Say one thing on standard error."""
    from ompbind.report.text import render_paragraph  # late: most runs have nothing to say

    tell(render_paragraph("ompbind", line))


def say_notes(plan: Plan) -> None:
    """Say those notes of a plan that a user should hear of before ranks start."""
    for note in plan.notes:
        if note.warning:
            say(f"warning: {note.text}")


def say_changed(changed: Sequence[Inherited]) -> None:
    """Say which inherited variables the ranks will not see as they are."""
    if not changed:
        return
    cleared = [f"{one.name}={one.before}" for one in changed if one.after is None]
    replaced = [f"{one.name}={one.before} (now {one.after})" for one in changed if one.after is not None]
    parts = [f"cleared {', '.join(cleared)}"] if cleared else []
    parts += [f"replaced {', '.join(replaced)}"] if replaced else []
    say(f"inherited variables that would defeat the placement: {'; '.join(parts)} (--keep-env leaves them)")
