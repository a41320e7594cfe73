"""`ompbind plan`: show the plan without starting anything."""

from collections.abc import Mapping
from typing import Any

import click

from ompbind.cli.click_base import Verb, at_least, complete_files, option
from ompbind.cli.console import print_warnings, read_screen
from ompbind.cli.planning import plan_or_suggest, read_other_runs
from ompbind.cli.planning_options import OUTPUT, make_request, make_run_spec, planning_options
from ompbind.errors import PlanError
from ompbind.machine.sources.table import read_machine
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import make_local_identities, make_variables
from ompbind.planning.rank_variables import Variables
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.report.export.table import FORMATS, formats_for, formats_help

RUN_ID = "plan"  # the name of the run where --run-id is not given, so that equal plans print equally


def _strategies(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    unknown = [name for name in names if name not in STRATEGIES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not a strategy: {', '.join(STRATEGIES)}")
    return names


EXAMPLES = (
    ("The CPUs of four ranks", "ompbind plan -n 4"),
    ("The same, as a picture", "ompbind plan -n 4 --format picture"),
    ("For another machine", "ompbind plan -n 4 --topology machine.tar.gz"),
    ("The same, as JSON", "ompbind plan -n 4 --topology machine.tar.gz --format json"),
    ("Set the variables of rank 1 in this shell, which is not bound",
     'eval "$(ompbind plan -n 2 --format sh --rank 1)"'),
    ("Compare strategies: which splits the fewest ranks over domains",
     "ompbind plan -n 6 --compare balanced,compact,spread"),
    ("Let Slurm bind two tasks on a whole node", "srun $(ompbind plan -n 2 --format slurm) ./app"),
)  # fmt: skip

DETAILS = """The same request on the same machine, with the same other runs on it, always gives the same plan.
"""


@click.command(
    "plan",
    cls=Verb,
    examples=EXAMPLES,
    details=DETAILS,
    short_help="Show which CPUs every rank would get, and why.",
)
@planning_options
@option(
    OUTPUT, "--format", "format_", type=click.Choice(list(FORMATS)), metavar="NAME", default="table",
    show_default=True, everyday=True, help=f"Output format: {formats_help()}",
)  # fmt: skip
@option(
    OUTPUT, "--rank", type=at_least(0), metavar="R", everyday=True,
    help=f"Rank to print; required for {formats_for('one')}; without it, {formats_for('any')} print"
         " all ranks",
)  # fmt: skip
@option(
    OUTPUT,
    "--explain",
    is_flag=True,
    everyday=True,
    help="Also print the reason for each choice, and metrics",
)
@option(
    OUTPUT, "--compare", type=_strategies, metavar="NAMES", everyday=True,
    help="Compare strategies side by side, for example balanced,compact,spread",
)  # fmt: skip
@click.argument("cmd", nargs=-1, metavar="[-- CMD...]", type=click.UNPROCESSED, shell_complete=complete_files)
def plan(format_: str, rank: int | None, explain: bool, **options: Any) -> int:
    """Show which CPUs every rank would get, and why; nothing is started. If a command is given, the plan is
    made for the OpenMP runtimes of this command.
    """
    if options["compare"]:
        return _compare(format_, explain or rank is not None, options)
    if explain and format_ not in ("table", "json"):
        raise click.UsageError("--explain requires --format table; json always has the reasons")
    chosen = FORMATS[format_]
    if rank is not None and chosen.ranks == "all":
        several = [name for name, format_ in FORMATS.items() if format_.ranks != "all"]
        raise click.UsageError(f"--rank requires --format {', '.join(several[:-1])} or {several[-1]}")
    request = make_request(options, options["cmd"])
    machine = read_machine(options["topology"])
    planned = plan_or_suggest(machine, request, read_other_runs(machine, request))
    variables = _variables(planned, options) if chosen.takes == "variables" else []
    if chosen.ranks == "one" or rank is not None:
        chosen_rank = _choose_rank(planned, rank)
        planned = planned.replace(placements=(planned.placements[chosen_rank],))
        variables = variables[chosen_rank : chosen_rank + 1]
    if not chosen.shows_notes:
        print_warnings(planned)
    render = chosen.load()
    if chosen.takes == "nothing":
        click.echo(render(planned))
    else:
        click.echo(render(planned, variables if chosen.takes == "variables" else read_screen()))
    if explain and format_ == "table":
        from ompbind.report.plan_explanation import render_explanation  # late: few plans are explained

        click.echo(f"\n{render_explanation(planned, read_screen())}")
    return 0


def _variables(planned: Plan, options: Mapping[str, Any]) -> list[Variables]:
    spec = make_run_spec(options, options["cmd"], RUN_ID)
    return [make_variables(planned, identity, spec) for identity in make_local_identities(planned)]


def _compare(format_: str, has_explain_or_rank: bool, options: Mapping[str, Any]) -> int:
    """Print the plans of several strategies; `has_explain_or_rank`: wrongly with --explain or --rank."""
    from ompbind.report.plan_explanation import render_comparison, render_comparison_json

    if has_explain_or_rank or format_ not in ("table", "json"):
        raise click.UsageError("--compare requires --format table or json, and excludes --explain and --rank")
    request = make_request(options, options["cmd"])
    machine = read_machine(options["topology"])
    occupied = read_other_runs(machine, request)
    if request.names_each_rank or request.is_unbound:
        raise click.UsageError(
            "--compare requires a mask that strategies divide: not 'none', and without parts for ranks"
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
        click.echo(render_comparison(plans, refused, read_screen()))
    else:
        both = {name: (planned, _variables(planned, options)) for name, planned in plans.items()}
        click.echo(render_comparison_json(both, refused))
    return 0


def _choose_rank(planned: Plan, rank: int | None) -> int:
    """Return the rank to print; raises click.UsageError if none is chosen or there is no such rank."""
    last = len(planned.placements) - 1
    if rank is None and last > 0:
        raise click.UsageError(f"choose a rank with --rank, 0 to {last}")
    if rank is not None and rank > last:
        ranks = f"ranks 0 to {last}" if last else "only rank 0"
        raise click.UsageError(f"--rank {rank}: the plan has {ranks}")
    return rank or 0
