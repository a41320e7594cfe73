"""Show the plan and the commands of `ompbind run`: before ranks start, or in a dry run."""

from __future__ import annotations

import sys

from ompbind.cli.console import print_changed_variables, write_stderr, write_stdout
from ompbind.cli.other_runs import read_other_runs
from ompbind.cli.planning import plan_or_suggest, read_planning_machine
from ompbind.cli.request import complete_request
from ompbind.cli.run_report import hide_secrets
from ompbind.cli.terminal import read_screen
from ompbind.planning.rank_command import find_changed, make_commands
from ompbind.report.plan import render_plan
from ompbind.report.rank_commands import find_filled_variables, render_commands

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ompbind.cli.options.values import Values
    from ompbind.planning.plan import Plan
    from ompbind.planning.rank_command import RunSpec
    from ompbind.planning.request import Request


def show_dry_run(request: Request, spec: RunSpec, values: Values, options: Mapping[str, Any]) -> None:
    """Print the plan of a dry run; `options` are the values with complete paths."""
    machine = read_planning_machine(values)
    request = complete_request(request, machine, values)
    plan = plan_or_suggest(machine, request, read_other_runs(machine, request, quiet=options["quiet"]))
    if options["rendezvous"]:
        from ompbind.cli.run_rendezvous import set_up_rendezvous  # late: few runs need it

        spec = set_up_rendezvous(options, spec)
    show_run(plan, spec, options)


def show_run(plan: Plan, spec: RunSpec, options: Mapping[str, Any], *, err: bool = False) -> None:
    """Print the plan and the command of the ranks, on standard error if `err`."""
    screen = read_screen(sys.stderr if err else sys.stdout)
    shown = hide_secrets(spec, options)
    commands = render_commands(make_commands(plan, shown), find_filled_variables(shown), screen.text_width)
    text = f"{render_plan(plan, screen)}\n\n{commands}"
    if options["rendezvous"]:
        from ompbind.execution.rendezvous import render_address

        text += f"\nrendezvous: {render_address(dict(spec.added_variables))}"
    (write_stderr if err else write_stdout)(text)
    if not options["quiet"]:
        print_changed_variables(spec.base, find_changed(plan, spec))
