"""`ompbind run`: plan, start and supervise n ranks."""

import os
import signal
import sys
import time

from ompbind.cli import register, run_settings
from ompbind.cli.console import read_message_width, read_screen, render_message, write_stderr, write_stdout
from ompbind.cli.option import VerbContext
from ompbind.cli.settings import Settings, make_planning_settings, make_requests, make_spec_of_run
from ompbind.cli.verb import Verb
from ompbind.commands.environment import RunSpec, list_parts
from ompbind.commands.rank_command import make_commands, mask_secrets
from ompbind.errors import LaunchError, OmpbindError
from ompbind.execution.outcome import Outcome, exit_code, find_error, was_interrupted
from ompbind.execution.process_pair import become_supervisor
from ompbind.execution.run_options import Reporter, RunOptions
from ompbind.execution.signals import exit_by_signal
from ompbind.execution.spawn import find_starts
from ompbind.execution.supervisor import supervise
from ompbind.inspection.verdict import NO_RANK, VerificationResult, make_unseen
from ompbind.launchers.allocation import read_job_nodes
from ompbind.launchers.launchers import may_have_launcher
from ompbind.machine.read.root import DirectoryRoot
from ompbind.planning.plan import Plan
from ompbind.registry.registry import Registry, make_own_run
from ompbind.report import run_summary

EXAMPLES = (
    ("Four ranks, equal shares", "ompbind run -n 4 -- python serve.py"),
    ("One rank per NUMA node", "ompbind run -n auto -s nodes -- ./server"),
    ("CPUs of each rank by hand", "ompbind run -n 2 -m '0-7|8-15' -- ./app"),
    ("Options from ompbind.toml", "ompbind run --preset serve -- ./server"),
    ("One rank for each GPU, on CPUs near it", "ompbind run -n auto --devices gpu -- ./server"),
    ("A port for each server, and a core for its threads that do not compute",
     "ompbind run -n 4 --service-cores 1 --env PORT={rank+8000} -- python serve.py"),
    ("The number of the rank before each line", "ompbind run -n 2 --output tag -- python serve.py"),
    ("A batch job: output in files, and a report as JSON",
     "ompbind run -n 4 --log-dir logs --report logs/run.json --timeout 1h -- ./job"),
    ("Wait until no other run uses the CPUs", "ompbind run -n 4 --exclusive --wait=1h -- ./job"),
    ("Start a failed rank again, at most three times", "ompbind run -n 4 --on-failure restart:3 -- ./server"),
    ("A server and clients on CPUs of their own, until the clients have exited",
     "ompbind run -c 4 --name server --ready tcp:8000 -- ./server"
     " : -n 4 --name load --until load -- ./client"),
    ("Count events of each rank with perf", "ompbind run -n 4 --wrap 'perf stat -o perf.{rank}' -- ./app"),
    ("Stop if a thread is not on the CPUs of its rank",
     "ompbind run -n 2 --verify=strict -- python serve.py"),
    ("Show the plan, start nothing", "ompbind run -n 4 --dry-run -- ./app"),
)  # fmt: skip

DETAILS = """ompbind waits for all ranks; if it is killed, they are killed too. The exit code is that of the
first rank that fails, 124 after a timeout, 125 if ompbind itself fails, 126 if the command cannot be executed
and 127 if it is not found.
"""


def run(ctx: VerbContext) -> int:
    """Start copies (ranks) of a command, each bound to CPUs of its own. OpenMP and other common thread
    pools are configured to use only these CPUs.
    """
    settings = None
    try:
        settings = make_planning_settings(ctx)
        settings = settings.replace(run_id=run_settings.choose_run_id(settings.run_id))
        outcome = _plan_and_supervise(settings)
    except Exception as error:
        if isinstance(error, OmpbindError):
            ctx.explain(error)  # before the report: it has the same message
        if settings is None:
            _remove_report(ctx)
        elif settings.report is not None and not settings.dry_run:
            from ompbind.cli.run_report import report_failure  # noqa: PLC0415 - door: --report

            report_failure(settings, error)
        raise
    if outcome is None:
        return 0
    decisive = find_error(outcome)
    if decisive:
        raise decisive
    if was_interrupted(outcome):
        exit_by_signal(signal.SIGINT)
    return exit_code(outcome)


def _remove_report(ctx: VerbContext) -> None:
    from ompbind.cli.run_report import remove_earlier_report  # noqa: PLC0415 - door: a wrong command line

    remove_earlier_report(ctx)


def _plan_and_supervise(settings: Settings) -> Outcome | None:
    """Make the plan, start and supervise the ranks, and write the report; None after a dry run.

    `become_supervisor` forks: only the supervisor goes on, while the foreground process waits for it.
    """
    spec = make_spec_of_run(settings.parts, settings.run_id or "")
    settings.check_topology("ranks")
    machine = register.read_planning_machine(*settings.parts)
    request = register.prefer_free_cores(make_requests(settings.parts, spec, machine), machine)
    settings = run_settings.fill_paths(settings, spec.run_id)
    output = run_settings.make_output(settings)
    if settings.dry_run:
        others = register.read_other_runs(machine, request, quiet=settings.quiet)
        plan = register.plan_or_suggest(machine, request, others)
        if settings.rendezvous:
            spec = run_settings.set_up_rendezvous(settings, spec)
        _show(plan, spec, settings)
        return None
    file = None
    if settings.report is not None:
        from ompbind.cli.run_report import finish_report, open_report  # noqa: PLC0415 - door: --report

        file = open_report(settings, spec)  # before anything starts
    if settings.rendezvous:
        spec = run_settings.set_up_rendezvous(settings, spec)
    own = make_own_run(spec.run_id, settings.grace)
    found = register.register_run(machine, request, own, *settings.parts)
    plan, release = found.plan, found.claim.release if found.claim else lambda: None
    try:
        if not settings.quiet:
            _print_before_start(plan, found.registry, spec, settings)
        began_at = time.time()
        reporter = RunReporter(plan, settings, stderr_shown=output is None or output.tag)
        commands = make_commands(plan, spec)  # before the fork: an error is that of the foreground process
        options = run_settings.make_run_options(settings, plan, spec, output, found.claim)
        try:
            starts = find_starts(commands)  # before the fork: after it, memory is copied when it is written
        except LaunchError as error:
            outcome = Outcome(exits=(), error=error)
        else:
            foreground = become_supervisor(release, settings.grace, verify=options.expected is not None)
            outcome = supervise(starts, options, foreground, reporter)
            if found.claim:
                found.claim.publish_exit(exit_code(outcome))
        outcome = _write_last_line(outcome, options, reporter)
    finally:
        release()
    if file is None:
        return outcome
    return finish_report(file, outcome, (plan, spec, began_at), settings)


def _write_last_line(outcome: Outcome, options: RunOptions, reporter: Reporter) -> Outcome:
    """Write the last line of --verify if the supervisor has not, and return the outcome with its result."""
    if options.expected is None or outcome.exits:
        return outcome
    why = f"{NO_RANK}: {outcome.error.message}" if outcome.error else NO_RANK
    verified = outcome.verified or make_unseen(why, strict=options.strict)
    if text := reporter.verified(verified):
        write_stderr(text)
    return outcome.replace(verified=verified)


def _print_before_start(plan: Plan, registry: Registry, spec: RunSpec, settings: Settings) -> None:
    nodes = read_job_nodes(os.environ, DirectoryRoot("/"), os.uname().nodename)
    if nodes or may_have_launcher(os.environ):
        register.warn_about_launcher(plan, nodes)
    if settings.verbose:
        _show(plan, spec, settings, err=True)
    else:
        register.print_warnings(plan, spec)
    register.print_registry_messages(registry, verbose=settings.verbose)


def _show(plan: Plan, spec: RunSpec, settings: Settings, *, err: bool = False) -> None:
    """Print the plan and the command of the ranks, on standard error if `err`."""
    from ompbind.report import plan as plan_texts  # noqa: PLC0415 - door: -v and --dry-run

    screen, shown = read_screen(sys.stderr if err else sys.stdout), mask_secrets(spec)
    commands = make_commands(plan, shown)
    text = f"{plan_texts.render_plan(plan, screen)}\n"
    for part, own in list_parts(plan, shown):
        of_part = [command for command in commands if command.group == part.request.group]
        variables = plan_texts.find_filled_variables(own)
        text += f"\n{plan_texts.render_commands(of_part, variables, screen.text_width)}"
    for own in spec.parts if settings.rendezvous else ():
        values = dict(own.added_variables)
        text += f"\nrendezvous: {values['MASTER_ADDR']}, port {values['MASTER_PORT']}"
    (write_stderr if err else write_stdout)(text)
    if not settings.quiet:
        register.print_changed_variables(plan, spec)


class RunReporter(Reporter):
    """Renders the messages of the supervisor.

    With --quiet only errors and failed verifications are rendered, with --verbose also the resource usage of
    each rank. `stderr_shown` is True if the user has seen what ranks wrote to standard error.
    """

    def __init__(self, plan: Plan, settings: Settings, *, stderr_shown: bool) -> None:
        self._plan, self._stderr_shown = plan, stderr_shown
        self._quiet, self._verbose = settings.quiet, settings.verbose

    def message(self, line: str) -> str:
        """Render one event of the run."""
        return "" if self._quiet else render_message(line)

    def error(self, line: str) -> str:
        """Render an error of ompbind, in quiet runs too."""
        return render_message(f"error: {line}")

    def verified(self, verified: VerificationResult) -> str:
        """Render the result of --verify."""
        from ompbind.report.verification import render_verified  # noqa: PLC0415 - door: --verify

        return render_verified(verified, self._plan, quiet=self._quiet, width=read_message_width())

    def summary(self, outcome: Outcome) -> str:
        """Render failures, throttling and contention; with `verbose` also the resource usage of ranks."""
        was_throttled = outcome.throttling and outcome.throttling.throttled_periods
        width = read_message_width()
        contention = "" if self._quiet else run_summary.render_contention(outcome, self._plan, width)
        held = "" if self._quiet else run_summary.render_held(outcome, width)
        if self._quiet or not (self._verbose or exit_code(outcome) or was_throttled):
            return "\n".join(filter(None, (contention, held)))
        failures = run_summary.render_failures(outcome, stderr_shown=self._stderr_shown, width=width)
        throttling = run_summary.render_throttling(outcome, self._plan, width)
        usage = run_summary.render_usage_table(outcome, self._plan, width) if self._verbose else ""
        return "\n".join(filter(None, (failures, throttling, contention, held, usage)))


VERB = Verb(
    "run",
    run,
    summary="Plan, start and supervise n ranks of a command.",
    page="running",
    examples=EXAMPLES,
    details=DETAILS,
    words="command",
    refuse=_remove_report,
)
