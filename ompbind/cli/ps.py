"""`ompbind ps`: the live runs on this machine and their CPUs."""

import os
import time

import click

from ompbind.cli.click_base import TABLE_OR_JSON, Verb
from ompbind.errors import ClaimError
from ompbind.registry.claims import VARIABLE, find_folder, read_live_runs
from ompbind.registry.run_info import see_runs
from ompbind.report.ps import render_ps, render_ps_json

EXAMPLES = (
    ("Who uses which CPUs", "ompbind ps"),
    ("The same for a program", "ompbind ps --format json"),
)


@click.command("ps", cls=Verb, examples=EXAMPLES, short_help="List live runs on this machine and their CPUs.")
@TABLE_OR_JSON
def ps(format_: str) -> int:
    """List the live runs of all users on this machine, oldest first, and the CPUs that each one uses.

    A rank that an engine started with 'ompbind exec' has a line of its own.
    """
    folder = find_folder(os.environ)
    try:
        sights = see_runs(read_live_runs(folder))
    except OSError as error:
        hint = f"it is where runs register; {VARIABLE} names another one"
        raise ClaimError(f"cannot read {folder}: {error.strerror}", hint=hint) from error
    click.echo(render_ps_json(sights) if format_ == "json" else render_ps(sights, time.time()))
    return 0
