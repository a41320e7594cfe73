"""`ompbind plan`: show the plan without starting anything."""

from collections.abc import Mapping
from typing import Any

import click

from ompbind.cli.click_base import Verb, option
from ompbind.cli.console import read_screen, say_notes
from ompbind.cli.planning import plan_or_suggest
from ompbind.cli.planning_options import complete_files, make_job, make_request, planning_options
from ompbind.errors import PlanError
from ompbind.machine.sources.table import read_machine
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import make_local_identities, make_variables
from ompbind.planning.rank_variables import Variables
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.registry.claims import read_occupied
from ompbind.report.export.table import FORMATS, formats_for, formats_help

OUTPUT = "Output options"
RUN_ID = "plan"  # the name of the run in a plan that nobody has named, so that equal plans print equally


def _strategies(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    unknown = [name for name in names if name not in STRATEGIES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is no strategy: known are {', '.join(STRATEGIES)}")
    return names


EXAMPLES = (
    ("Which CPUs would four ranks get here", "ompbind plan -n 4"),
    ("Where on the machine", "ompbind plan -n 4 --format picture"),
    ("The same on a recorded machine, for a program",
     "ompbind plan -n 4 --topology machine.tar.gz --format json"),
    ("Give this shell the variables that rank 1 would have (it is not confined)",
     'eval "$(ompbind plan -n 2 --format sh --rank 1)"'),
    ("Which strategy crosses the fewest borders", "ompbind plan -n 6 --compare balanced,compact,spread"),
    ("Let Slurm bind two tasks on a whole node", "srun $(ompbind plan -n 2 --format slurm) ./app"),
)  # fmt: skip


@click.command(
    "plan", cls=Verb, examples=EXAMPLES, short_help="Show which CPUs every rank would get, and why."
)
@planning_options
@option(
    OUTPUT, "--format", "format_", type=click.Choice(list(FORMATS)), metavar="NAME", default="table",
    show_default=True, help=f"How to print the plan: {formats_help()}.",
)  # fmt: skip
@option(
    OUTPUT, "--rank", type=click.IntRange(min=0), metavar="R",
    help=f"The rank for --format {formats_for('one')}; the only one for {formats_for('any')}.",
)  # fmt: skip
@option(OUTPUT, "--explain", is_flag=True, help="Add the reason for every choice, and the plan's measures.")
@option(
    OUTPUT, "--compare", type=_strategies, metavar="NAMES",
    help="Show the plans of several strategies side by side, as in balanced,compact,spread.",
)  # fmt: skip
@click.argument("cmd", nargs=-1, metavar="[-- CMD...]", type=click.UNPROCESSED, shell_complete=complete_files)
def plan(format_: str, rank: int | None, explain: bool, **options: Any) -> int:
    """Show which CPUs every rank would get, and why; nothing is started.

    With a command behind the options the plan is made for the OpenMP runtimes that the files of that
    command tell of, as run does. The same request on the same machine, with the same other runs on it,
    always prints the same plan.
    """
    if options["compare"]:
        return _compare(format_, explain or rank is not None, options)
    if explain and format_ not in ("table", "json"):
        raise click.UsageError("--explain goes with --format table; json has the reasons always")
    chosen = FORMATS[format_]
    if rank is not None and chosen.ranks == "all":
        several = [name for name, one in FORMATS.items() if one.ranks != "all"]
        raise click.UsageError(f"--rank goes with --format {', '.join(several[:-1])} or {several[-1]}")
    request = make_request(options, options["cmd"])
    machine = read_machine(options["topology"])
    made = plan_or_suggest(machine, request, read_occupied(machine, request))
    variables = _variables(made, options) if chosen.takes == "variables" else []
    if chosen.ranks == "one" or rank is not None:
        at = _chosen(made, rank)
        made, variables = made.replace(placements=(made.placements[at],)), variables[at : at + 1]
    if not chosen.shows_notes:
        say_notes(made)
    render = chosen.load()
    if chosen.takes == "nothing":
        click.echo(render(made))
    else:
        click.echo(render(made, variables if chosen.takes == "variables" else read_screen()))
    if explain and format_ == "table":
        from ompbind.report.plan_explanation import render_explanation  # late: most plans are not explained

        click.echo(f"\n{render_explanation(made)}")
    return 0


def _variables(made: Plan, options: Mapping[str, Any]) -> list[Variables]:
    job = make_job(options, options["cmd"], RUN_ID)
    return [make_variables(made, identity, job) for identity in make_local_identities(made)]


def _compare(format_: str, more: bool, options: Mapping[str, Any]) -> int:
    """Print the plans of several strategies; `more` tells of options that do not go with that."""
    from ompbind.report.plan_explanation import render_comparison, render_comparison_json

    if more or format_ not in ("table", "json"):
        raise click.UsageError("--compare goes with --format table or json, and without --explain and --rank")
    request = make_request(options, options["cmd"])
    machine = read_machine(options["topology"])
    occupied = read_occupied(machine, request)
    if request.names_each_rank or request.is_unbound:
        raise click.UsageError(
            "--compare needs a mask that strategies divide: not 'none', and without a part for each rank"
        )
    plans: dict[str, Plan] = {}
    refused: dict[str, PlanError] = {}
    for name in options["compare"]:
        try:
            plans[name] = plan_or_suggest(machine, request.replace(strategy=name), occupied)
        except PlanError as error:
            refused[name] = error
    if not plans:
        raise next(iter(refused.values()))
    if format_ == "table":
        click.echo(render_comparison(plans, refused))
    else:
        both = {name: (made, _variables(made, options)) for name, made in plans.items()}
        click.echo(render_comparison_json(both, refused))
    return 0


def _chosen(made: Plan, rank: int | None) -> int:
    last = len(made.placements) - 1
    if rank is None and last > 0:
        raise click.UsageError(f"say which rank with --rank, 0 to {last}")
    if rank is not None and rank > last:
        there = f"ranks 0 to {last}" if last else "only rank 0"
        raise click.UsageError(f"there is no rank {rank}: the plan has {there}")
    return rank or 0
