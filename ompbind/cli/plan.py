"""`ompbind plan`: show the plan without starting anything."""

from collections.abc import Mapping
from typing import Any

import click

from ompbind.cli.options import make_job, make_request, planning_options
from ompbind.cli.say import say_notes
from ompbind.cli.verb import Verb, option
from ompbind.command import local_seats, make_variables
from ompbind.machine.sources import read_machine
from ompbind.placement import Plan
from ompbind.plan import make_plan
from ompbind.report.plan import Variables, render_env, render_plan, render_plan_json, render_sh

OUTPUT = "Output options"
RUN_ID = "plan"
"""The name of the run in a plan that nobody has named, so that equal plans print equally."""

EXAMPLES = (
    ("Which CPUs would four ranks get here", "ompbind plan -n 4"),
    (
        "The same on a recorded machine, for a program",
        "ompbind plan -n 4 --topology machine.tar.gz --format json",
    ),
    (
        "Give this shell the variables that rank 1 would have (it is not confined)",
        'eval "$(ompbind plan -n 2 --format sh --rank 1)"',
    ),
)


@click.command(
    "plan", cls=Verb, examples=EXAMPLES, short_help="Show which CPUs every rank would get, and why."
)
@planning_options
@option(
    OUTPUT,
    "--format",
    "format_",
    type=click.Choice(["table", "json", "env", "sh"]),
    default="table",
    show_default=True,
    help="How to print it: env and sh are the variables of one rank.",
)
@option(OUTPUT, "--rank", type=click.IntRange(min=0), metavar="R", help="The rank for --format env and sh.")
def plan(format_: str, rank: int | None, **options: Any) -> int:
    """Show which CPUs every rank would get, and why; nothing is started.

    The same request on the same machine always prints the same plan.
    """
    made = make_plan(read_machine(options["topology"]), make_request(options))
    if rank is not None and format_ not in ("env", "sh"):
        raise click.UsageError("--rank goes with --format env or sh")
    if format_ == "table":
        click.echo(render_plan(made))
    elif format_ == "json":
        click.echo(render_plan_json(made, _variables(made, options)))
    else:
        chosen = _variables(made, options)[_chosen(made, rank)]
        say_notes(made)
        click.echo(render_sh(chosen) if format_ == "sh" else render_env(chosen))
    return 0


def _variables(made: Plan, options: Mapping[str, Any]) -> list[Variables]:
    job = make_job(options, (), RUN_ID)
    return [make_variables(made, seat, job) for seat in local_seats(made)]


def _chosen(made: Plan, rank: int | None) -> int:
    last = len(made.placements) - 1
    if rank is None and last > 0:
        raise click.UsageError(f"say which rank with --rank, 0 to {last}")
    if rank is not None and rank > last:
        raise click.UsageError(
            f"there is no rank {rank}: the plan has rank 0 to {last}"
            if last
            else f"there is no rank {rank}: the plan has only rank 0"
        )
    return rank or 0
