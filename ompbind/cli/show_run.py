"""Show the plan and the commands of `ompbind run`: before ranks start, or in a dry run."""

import sys

from ompbind.cli.console import read_screen, write_stderr, write_stdout
from ompbind.cli.register import plan_or_suggest, print_changed_variables, read_other_runs
from ompbind.cli.run_settings import set_up_rendezvous
from ompbind.cli.settings import Settings
from ompbind.commands.environment import RunSpec, list_parts
from ompbind.commands.rank_command import make_commands, mask_secrets
from ompbind.machine.model import Machine
from ompbind.planning.plan import Plan
from ompbind.planning.request import Requests
from ompbind.report.plan import find_filled_variables, render_commands, render_plan


def show_dry_run(machine: Machine, request: Requests, spec: RunSpec, settings: Settings) -> None:
    """Print the plan of a dry run."""
    plan = plan_or_suggest(machine, request, read_other_runs(machine, request, quiet=settings.quiet))
    if settings.rendezvous:
        spec = set_up_rendezvous(settings, spec)
    show_run(plan, spec, settings)


def show_run(plan: Plan, spec: RunSpec, settings: Settings, *, err: bool = False) -> None:
    """Print the plan and the command of the ranks, on standard error if `err`."""
    screen = read_screen(sys.stderr if err else sys.stdout)
    shown = mask_secrets(spec)
    commands = make_commands(plan, shown)
    text = f"{render_plan(plan, screen)}\n"
    for part, own in list_parts(plan, shown):
        of_part = [command for command in commands if command.group == part.request.group]
        text += f"\n{render_commands(of_part, find_filled_variables(own), screen.text_width)}"
    for own in spec.parts if settings.rendezvous else ():
        variables = dict(own.added_variables)
        text += f"\nrendezvous: {variables['MASTER_ADDR']}, port {variables['MASTER_PORT']}"
    (write_stderr if err else write_stdout)(text)
    if not settings.quiet:
        print_changed_variables(plan, spec)
