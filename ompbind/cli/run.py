"""`ompbind run`: plan, start and supervise n ranks."""

import os
import signal
import time

import click

from ompbind.cli.option import VerbContext
from ompbind.cli.plan_messages import print_changed_variables, print_warnings, warn_about_copies
from ompbind.cli.register import print_registry_messages, read_planning_machine, register_run
from ompbind.cli.request import make_request, make_run_spec
from ompbind.cli.run_report import RunReporter, finish_report, open_report, report_failure
from ompbind.cli.run_settings import (
    choose_run_id,
    fill_paths,
    make_output,
    make_run_options,
    set_up_rendezvous,
)
from ompbind.cli.settings import RunSettings, make_run_settings
from ompbind.cli.verb import Verb
from ompbind.errors import LaunchError, OmpbindError, RequestError
from ompbind.execution.outcome import Outcome, exit_code, was_interrupted
from ompbind.execution.process_pair import Cleanup, become_supervisor
from ompbind.execution.signals import exit_by_signal
from ompbind.execution.spawn import find_starts
from ompbind.execution.supervisor import supervise
from ompbind.launchers.launchers import may_have_launcher
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import RunSpec, find_changed, make_commands, make_spec_before_plan
from ompbind.registry.registry import Registry, make_run_identity

EXAMPLES = (
    ("Four ranks, equal shares", "ompbind run -n 4 -- python serve.py"),
    ("One rank per NUMA node", "ompbind run -n auto -s nodes -- ./server"),
    ("Options from ompbind.toml", "ompbind run --preset serve -- ./server"),
    ("CPUs of each rank by hand", "ompbind run -n 2 -m '0-7|8-15' -- ./app"),
    ("One rank for each GPU, on CPUs near it", "ompbind run -n auto --devices gpu -- ./server"),
    ("A port for each server, and a core for its threads that do not compute",
     "ompbind run -n 4 --service-cores 1 --env PORT={rank+8000} -- python serve.py"),
    ("The number of the rank before each line", "ompbind run -n 2 --output tag -- python serve.py"),
    ("A batch job: output in files, and a report as JSON",
     "ompbind run -n 4 --log-dir logs --report logs/run.json --timeout 1h -- ./job"),
    ("Wait until no other run uses the CPUs", "ompbind run -n 4 --exclusive --wait=1h -- ./job"),
    ("Start a failed rank again, at most three times", "ompbind run -n 4 --on-failure restart:3 -- ./server"),
    ("Count events of each rank with perf", "ompbind run -n 4 --wrap 'perf stat -o perf.{rank}' -- ./app"),
    ("Stop if a thread is not on the CPUs of its rank",
     "ompbind run -n 2 --verify=strict -- python serve.py"),
    ("Show the plan, start nothing", "ompbind run -n 4 --dry-run -- ./app"),
)  # fmt: skip

DETAILS = """ompbind waits for all ranks; if it is killed, they are killed too. The exit code is that of the
first rank that fails, 124 after a timeout, 125 if ompbind itself fails, 126 if the command cannot be executed
and 127 if it is not found.
"""


HELP = """Start copies (ranks) of a command, each bound to CPUs of its own. OpenMP and other common thread
pools are configured to use only these CPUs.
"""


def run(ctx: click.Context) -> int:
    """Start copies (ranks) of a command, wait for them, and return the exit code.

    The error of a run is raised; this process is killed by SIGINT if the run was interrupted.
    """
    assert isinstance(ctx, VerbContext)
    settings = make_run_settings(ctx)
    try:
        run_id = choose_run_id(settings.planning.run_id)
        settings = settings.replace(planning=settings.planning.replace(run_id=run_id))
        outcome = _plan_and_supervise(settings)
    except Exception as error:
        if isinstance(error, OmpbindError):
            settings.planning.sources.explain(error)  # before the report: it has the same message
        report_failure(settings, error)
        raise
    if outcome is None:
        return 0
    if outcome.error:
        raise outcome.error
    if was_interrupted(outcome):
        exit_by_signal(signal.SIGINT)
    return exit_code(outcome)


def _report_refused(ctx: click.Context, error: OmpbindError) -> None:
    """Write the report of a run whose options are wrong."""
    assert isinstance(ctx, VerbContext)
    report_failure(make_run_settings(ctx), error)


def _plan_and_supervise(settings: RunSettings) -> Outcome | None:
    """Make the plan, start and supervise the ranks, and write the report; None after a dry run.

    `become_supervisor` forks: only the supervisor goes on, while the foreground process waits for it.
    """
    planning = settings.planning
    spec = make_run_spec(planning, planning.run_id or "")
    if planning.topology != LIVE and not settings.dry_run:
        raise RequestError(
            "--topology: ranks can only run on this machine", hint="add --dry-run, or omit --topology"
        )
    machine = read_planning_machine(planning)
    request = make_request(planning, make_spec_before_plan(spec), machine)
    settings = fill_paths(settings, spec.run_id)
    output = make_output(settings)
    if settings.dry_run:
        from ompbind.cli.show_run import show_dry_run  # noqa: PLC0415 - door: --dry-run

        show_dry_run(machine, request, spec, settings)
        return None
    file = open_report(settings, spec) if settings.report is not None else None  # before anything starts
    if settings.rendezvous:
        spec = set_up_rendezvous(settings, spec)
    found = register_run(machine, request, make_run_identity(spec.run_id), planning)
    plan, release = found.plan, found.claim.release if found.claim else lambda: None
    try:
        if not planning.quiet:
            _print_before_start(plan, found.registry, spec, settings)
        began_at = time.time()
        shown = output is None or output.tag
        reporter = RunReporter(plan, quiet=planning.quiet, verbose=planning.verbose, stderr_shown=shown)
        commands = make_commands(plan, spec)  # before the fork: an error is that of the foreground process
        options = make_run_options(settings, plan, spec, output, found.claim)
        try:
            starts = find_starts(commands)  # before the fork: after it, memory is copied when it is written
        except LaunchError as error:
            outcome = Outcome(exits=(), error=error)
        else:
            foreground = become_supervisor(Cleanup(grace_s=settings.supervision.grace, release=release))
            outcome = supervise(starts, options, foreground, reporter)
    finally:
        release()
    return finish_report(file, outcome, (plan, spec, began_at), settings) if file else outcome


def _print_before_start(plan: Plan, registry: Registry, spec: RunSpec, settings: RunSettings) -> None:
    """Print warnings, or with -v the plan, before ranks start."""
    if may_have_launcher(os.environ):
        warn_about_copies(plan)
    if settings.planning.verbose:
        from ompbind.cli.show_run import show_run  # noqa: PLC0415 - door: -v

        show_run(plan, spec, settings, err=True)
    else:
        print_warnings(plan)
        print_changed_variables(spec.base, find_changed(plan, spec))
    print_registry_messages(registry, verbose=settings.planning.verbose)


VERB = Verb(
    "run",
    run,
    help=HELP,
    summary="Plan, start and supervise n ranks of a command.",
    examples=EXAMPLES,
    details=DETAILS,
    warns_of_variables=True,
    words="command",
    refuse=_report_refused,
)
