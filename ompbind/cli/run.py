"""`ompbind run`: plan, start and supervise n ranks."""

import os
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ompbind.cli.click_base import Verb
from ompbind.cli.console import say_changed, say_notes, say_registry, tell
from ompbind.cli.planning import plan_here, plan_or_suggest
from ompbind.cli.planning_options import complete_files, make_job, make_request, planning_options
from ompbind.cli.run_options import fill_paths, invite_ranks, make_output, make_run_options, running_options
from ompbind.cli.run_reporter import RunReporter
from ompbind.errors import LaunchError, RequestError
from ompbind.execution.job_control import kill_oneself
from ompbind.execution.outcome import Outcome, exit_code, was_interrupted
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.machine.sources.table import read_machine
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import Job, find_changed, make_command, make_local_identities
from ompbind.planning.request import Request
from ompbind.registry.claims import Claim, Registry, lock_registry, make_claimant, read_occupied

if TYPE_CHECKING:  # few runs are reported, most inherit their output
    from ompbind.execution.report_file import ReportFile

EXAMPLES = (
    ("Four servers on equal shares of the machine, each with its own port",
     "ompbind run -n 4 --env PORT=800{rank} -- python serve.py"),
    ("One rank for each NUMA node, one core of each kept free for I/O",
     "ompbind run -n auto -s nodes --reserve 1 -- ./server"),
    ("Two ranks on CPUs named by hand", "ompbind run -n 2 -m '0-7|8-15' -- ./app"),
    ("Every line with the number of its rank", "ompbind run -n 2 --output tag -- python serve.py"),
    ("A job: the output of each rank in files, and a report for programs",
     "ompbind run -n 4 --log-dir logs --report logs/run.json --timeout 1h -- ./job"),
    ("Stop unless every thread stays on the CPUs of its rank",
     "ompbind run -n 2 --verify=strict -- python serve.py"),
    ("Show what would happen", "ompbind run -n 4 --dry-run -- ./app"),
)  # fmt: skip


@click.command(
    "run",
    cls=Verb,
    examples=EXAMPLES,
    options_metavar="[OPTIONS] --",
    short_help="Plan, start and supervise n ranks of a command.",
)
@planning_options
@running_options
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=complete_files)
def run(cmd: tuple[str, ...], **options: Any) -> int:
    """Plan, start and supervise n copies ("ranks") of a command.

    Every rank gets CPUs of its own and an environment that makes OpenMP and other thread pools use
    exactly these. The exit code is that of the first rank that fails; 124 after a timeout, 125 when
    ompbind itself fails, 126 and 127 when the command cannot be executed or found.
    """
    request = make_request(options, cmd)
    if options["topology"] != LIVE and not options["dry_run"]:
        raise RequestError(
            "ranks run on this machine, not on a recorded one", hint="add --dry-run, or leave --topology out"
        )
    job = make_job(options, cmd, f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    options = fill_paths(options, job.run_id)
    options["output"] = make_output(options)  # what it refuses needs no machine
    if options["dry_run"]:
        return _dry_run(request, job, options)
    file = None
    if options["report"] is not None:
        from ompbind.execution.report_file import prepare_report  # late: few runs are reported

        file = prepare_report(options["report"], options["log_dir"] or "")  # before anything starts
    job = invite_ranks(options, job)
    machine = read_machine()
    with lock_registry(request.sharing, make_claimant(job.run_id)) as registry:
        plan = plan_here(machine, request, registry.occupied)
        claim = registry.register(plan)
    if not options["quiet"]:
        _tell(plan, registry, job, options)
    began_at = time.time()
    outcome = _supervise(plan, claim, job, options)
    reported = file is None or _write_report(file, outcome, plan=plan, job=job, began_at=began_at)
    return _conclude(outcome, reported=reported)


def _dry_run(request: Request, job: Job, options: Mapping[str, Any]) -> int:
    machine = read_machine(options["topology"])
    plan = plan_or_suggest(machine, request, read_occupied(machine, request))
    _show(plan, invite_ranks(options, job), options)
    return 0


def _tell(plan: Plan, registry: Registry, job: Job, options: Mapping[str, Any]) -> None:
    if options["verbose"]:
        _show(plan, job, options, err=True)
    else:
        say_notes(plan)
        say_changed(job.base, find_changed(plan, job))
    say_registry(registry, verbose=options["verbose"])


def _show(plan: Plan, job: Job, options: Mapping[str, Any], *, err: bool = False) -> None:
    import shlex

    from ompbind.report.plan import render_plan

    text = f"{render_plan(plan)}\n\ncommand of every rank: {shlex.join(job.argv)}"
    if options["rendezvous"]:
        from ompbind.execution.rendezvous import meeting_point

        text += f"\nranks meet at: {meeting_point(dict(job.extra))}"
    (tell if err else click.echo)(text)
    say_changed(job.base, find_changed(plan, job))


def _supervise(plan: Plan, claim: Claim | None, job: Job, options: Mapping[str, Any]) -> Outcome:
    """Start the ranks and see them through; what returns is the keeper, the caller's process waits for it."""
    from ompbind.execution.process_pair import become_supervisor  # late: a dry run needs none of it
    from ompbind.execution.supervisor import run_ranks

    def give_back() -> None:
        if claim:
            claim.release()

    seen = options["output"] is None or options["output"].tag
    reporter = RunReporter(plan, quiet=options["quiet"], verbose=options["verbose"], seen=seen)
    try:
        run_options = make_run_options(options, plan, job)
        foreground = become_supervisor(give_back)
        commands = [make_command(plan, identity, job) for identity in make_local_identities(plan)]
        return run_ranks(commands, run_options, foreground, reporter)
    finally:
        give_back()


def _conclude(outcome: Outcome, *, reported: bool) -> int:
    if outcome.error:
        raise outcome.error
    if was_interrupted(outcome):
        kill_oneself(signal.SIGINT)
    return exit_code(outcome) or (0 if reported else LaunchError.launch_code)


def _write_report(file: "ReportFile", outcome: Outcome, *, plan: Plan, job: Job, began_at: float) -> bool:
    """Write the report of a run, and tell where that fails: ranks that ended well did so nevertheless."""
    from ompbind.execution.report_file import write_report  # late, as all that follows
    from ompbind.report.run_json import render_run
    from ompbind.report.text import render_error

    try:
        write_report(file, render_run(plan, job, outcome, began_at))
    except LaunchError as error:
        tell(render_error(error))
        return False
    return True
