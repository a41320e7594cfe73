"""`ompbind run`: plan, start and supervise n ranks."""

from __future__ import annotations

import os
import signal
import time

from ompbind.cli.options.values import Values
from ompbind.cli.planning import read_planning_machine, register_run
from ompbind.cli.quick_imports import find_outdated
from ompbind.cli.request import complete_request, make_request, make_run_spec
from ompbind.cli.run_reporter import RunReporter
from ompbind.cli.run_settings import choose_run_id, fill_paths, make_output, make_run_options
from ompbind.cli.verb import Verb
from ompbind.errors import LaunchError, OmpbindError, RequestError
from ompbind.execution.job_control import exit_by_signal
from ompbind.execution.outcome import Outcome, exit_code, was_interrupted
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import RunSpec, find_changed, make_commands, make_spec_before_plan
from ompbind.registry.claim_writing import Claim
from ompbind.registry.claims import Registry, make_run_identity

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ompbind.cli.description import Description


def _start(values: Values) -> int:
    """Start copies (ranks) of a command."""
    try:
        values.set_value("run_id", choose_run_id(values["run_id"]))
        outcome = _run(values)
    except Exception as error:
        if isinstance(error, OmpbindError):
            from ompbind.cli.options.error_sources import name_sources  # late: most runs have no error

            name_sources(error, values)  # before the report: it has the same message
        if values["report"] is not None:
            from ompbind.cli.run_report import report_failure  # late: few runs write a report

            report_failure(values, error)
        raise
    return _conclude(outcome) if outcome else 0


def _report_refused(values: Values, error: OmpbindError) -> None:
    """Write the report of a run whose options are wrong."""
    from ompbind.cli.run_report import report_failure  # late: most options are correct

    report_failure(values, error)


def _run(values: Values) -> Outcome | None:
    """Run the ranks and write the report; None after a dry run."""
    spec = make_run_spec(values, values["run_id"])
    request = make_request(values, make_spec_before_plan(spec))
    if values["topology"] != LIVE and not values["dry_run"]:
        raise RequestError(
            "--topology: ranks can only run on this machine", hint="add --dry-run, or omit --topology"
        )
    options = {**values, **fill_paths(values, spec.run_id)}
    options["output"] = make_output(options)  # before the machine is read: wrong options are reported first
    if options["dry_run"]:
        from ompbind.cli.show_run import show_dry_run  # late: most runs start ranks

        show_dry_run(request, spec, values, options)
        return None
    file = None
    if options["report"] is not None:
        from ompbind.cli.run_report import open_report  # late: few runs write a report

        file = open_report(options, spec)  # before anything starts
    if options["rendezvous"]:
        from ompbind.cli.run_rendezvous import set_up_rendezvous  # late: few runs need it

        spec = set_up_rendezvous(options, spec)
    machine = read_planning_machine(values)
    request = complete_request(request, machine, values)
    found = register_run(machine, request, make_run_identity(spec.run_id), options)
    try:
        if not options["quiet"]:
            _print_before_start(found.plan, found.registry, spec, options)
        began_at = time.time()
        outcome = _supervise(found.plan, found.claim, spec, options)
    finally:
        if found.claim:
            found.claim.release()
    if file is None:
        return outcome
    from ompbind.cli.run_report import finish_report, hide_secrets  # late, as above
    from ompbind.report.run_json import render_run

    text = render_run(found.plan, hide_secrets(spec, options), outcome, began_at)
    return finish_report(file, outcome, text, options)


def _print_before_start(plan: Plan, registry: Registry, spec: RunSpec, options: Mapping[str, Any]) -> None:
    """Print warnings, or with -v the plan, before ranks start."""
    from ompbind.cli.console import print_changed_variables, print_warnings  # late: quiet runs print nothing
    from ompbind.launchers.recognition import may_have_launcher

    if may_have_launcher(os.environ):
        from ompbind.cli.launcher_messages import warn_about_copies  # late: most runs have no launcher

        warn_about_copies(plan)
    if options["verbose"]:
        from ompbind.cli.show_run import show_run  # late: few runs are verbose

        show_run(plan, spec, options, err=True)
    else:
        print_warnings(plan)
        print_changed_variables(spec.base, find_changed(plan, spec))
    if registry.ignored or registry.failure:
        from ompbind.cli.other_runs import print_registry_messages  # late: most claims can be read

        print_registry_messages(registry, verbose=options["verbose"])


def _supervise(plan: Plan, claim: Claim | None, spec: RunSpec, options: Mapping[str, Any]) -> Outcome:
    """Start the ranks and wait for them.

    This process forks: only the supervisor returns, while the foreground process waits for it.
    """
    from ompbind.execution.executables import find_starts
    from ompbind.execution.process_pair import Cleanup, become_supervisor  # late: a dry run needs none of it

    shown = options["output"] is None or options["output"].tag
    reporter = RunReporter(plan, quiet=options["quiet"], verbose=options["verbose"], stderr_shown=shown)
    commands = make_commands(plan, spec)  # before the fork: an error is that of the foreground process
    run_options = make_run_options(options, plan, spec)
    if claim and run_options.restart:
        run_options = run_options.replace(publish_restarts=claim.publish_restarts)
    release = claim.release if claim else lambda: None
    try:
        starts = find_starts(commands)  # before the fork: afterwards, memory is copied when it is written
    except LaunchError as error:
        return Outcome(exits=(), error=error)
    foreground = become_supervisor(Cleanup(grace_s=run_options.grace_s, release=release))
    from ompbind.execution.supervisor import run_ranks  # late: the foreground process does not need it

    outcome = run_ranks(starts, run_options, foreground, reporter)
    loader = find_outdated()
    if loader:
        from ompbind.launchers.recognition import may_have_launcher  # late: only the first run writes it

        if not may_have_launcher(os.environ):  # else all nodes of a job would write to a shared file system
            loader.write_bundle()
    return outcome


def _conclude(outcome: Outcome) -> int:
    """Return the exit code of a run; raise its error, or be killed by SIGINT if the run was interrupted."""
    if outcome.error:
        raise outcome.error
    if was_interrupted(outcome):
        exit_by_signal(signal.SIGINT)
    return exit_code(outcome)


def _describe() -> Description:
    from ompbind.cli.run_description import DESCRIPTION  # late: few command lines show the help

    return DESCRIPTION


VERB = Verb(
    name="run",
    run=_start,
    describe=_describe,
    warns_of_variables=True,
    words="command",
    refuse=_report_refused,
)
