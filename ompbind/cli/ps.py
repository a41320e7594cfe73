"""`ompbind ps`: the live runs on this machine and their CPUs."""

import os
import time

import click

from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.settings import make_settings
from ompbind.cli.verb import Verb
from ompbind.errors import ClaimError
from ompbind.record import Record
from ompbind.registry.claims import WAITING_SUFFIX
from ompbind.registry.registry import (
    DIRECTORY_VARIABLE,
    find_claims_directory,
    read_claim_list,
    read_run_info,
    render_ignored,
)
from ompbind.report.ps import render_ps, render_ps_json

EXAMPLES = (
    ("Which run uses which CPUs", "ompbind ps"),
    ("The same as JSON", "ompbind ps --format json"),
)


HELP = """List the live runs of all users on this machine and the CPUs of each, oldest first.

Each rank that a launcher started with 'ompbind exec' has a line of its own. Runs that wait for CPUs (--wait)
come last, with the CPUs that they may get.
"""


class PsSettings(Record):
    """The fields are the options of the same names."""

    format: str


def ps(ctx: click.Context) -> int:
    """List the live runs of all users on this machine and the CPUs of each, oldest first."""
    directory = find_claims_directory(os.environ)
    try:
        claims, tickets = read_claim_list(directory), read_claim_list(directory, (WAITING_SUFFIX,))
    except OSError as error:
        hint = f"runs register there; set {DIRECTORY_VARIABLE} to use another directory"
        raise ClaimError(f"cannot read {directory}: {error.strerror}", hint=hint) from error
    ignored = render_ignored((*claims.ignored, *tickets.ignored), directory)
    if ignored:
        print_message(ignored)
    infos = read_run_info((*claims.runs, *tickets.runs))
    is_json = make_settings(PsSettings, ctx.params).format == "json"
    write_stdout(render_ps_json(infos) if is_json else render_ps(infos, time.time(), read_screen()))
    return 0


VERB = Verb(
    "ps",
    ps,
    help=HELP,
    summary="List live runs on this machine and their CPUs.",
    page="sharing.md",
    examples=EXAMPLES,
)
