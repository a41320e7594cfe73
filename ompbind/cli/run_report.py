"""The file of --report: before, after and instead of a run.

A run that fails before it starts writes a file too. A command line that is refused, and a command that is not
found, remove the report of an earlier run. Otherwise this would look like the report of the new run.
"""

import os
import signal
import stat
import time
from contextlib import suppress

from ompbind.cli.console import read_message_width, write_stderr
from ompbind.cli.option import ValueLevel, VerbContext
from ompbind.cli.options import STRICT
from ompbind.cli.report_file import HEAD_BYTES, ReportFile, prepare_report, write_report
from ompbind.cli.run_settings import choose_run_id, fill_paths
from ompbind.cli.settings import Settings
from ompbind.commands.environment import RunSpec
from ompbind.commands.rank_command import mask_secrets
from ompbind.errors import CommandNotExecutableError, CommandNotFoundError, LaunchError, OmpbindError
from ompbind.execution.outcome import Outcome
from ompbind.execution.signals import TERMINATION_SIGNALS, exit_by_signal, find_unignored
from ompbind.inspection.verdict import NO_RANK, make_unseen
from ompbind.planning.plan import Plan
from ompbind.report.plan_json import SCHEMA, render_run
from ompbind.report.text import render_error

_MARK = SCHEMA.partition("/")[0].encode() + b"/"  # in the beginning of each report, of any version


def open_report(settings: Settings, spec: RunSpec) -> ReportFile:
    """Check before the start that the report of --report can be written.

    If other users could take its name, or if the run may be killed while it waits, an unfinished report is
    written there now; a signal that ends the run before its start replaces that. Raises RequestError.
    """
    file = _prepare(settings)
    can_be_taken = file.directory is not None and file.directory.shared and file.before is None
    if file.directory is None or not (can_be_taken or settings.wait is not None):
        return file
    error, masked = LaunchError("the run has not finished"), mask_secrets(spec)
    write_report(file, _render_failure(masked, Outcome(exits=(), error=error), error.message, settings))

    def report_signal(number: int, _: object) -> None:
        outcome = Outcome(exits=(), start_interrupted_by=number)
        with suppress(OmpbindError):
            _write(_prepare(settings), _render_failure(masked, outcome, NO_RANK, settings))
        exit_by_signal(number)
        os._exit(128 + number)  # process 1 of a container

    for number in find_unignored((*TERMINATION_SIGNALS, signal.SIGHUP)):  # until the supervisor handles them
        signal.signal(number, report_signal)
    return _prepare(settings)


def _prepare(settings: Settings) -> ReportFile:
    mark = b"" if settings.force else _MARK
    return prepare_report(settings.report or "", settings.log_dir or "", mark)


def finish_report(
    file: ReportFile, outcome: Outcome, started: tuple[Plan, RunSpec, float], settings: Settings
) -> Outcome:
    """Write the report of a run; an error is printed, and added to the write errors of the outcome.

    `started` are the plan, what all ranks share, and the time of the start. If no command could be executed,
    there is no report, except for what reads a pipe or an open file.
    """
    plan, spec, began_at = started
    is_own = file.directory and (file.before is None or stat.S_ISREG(file.before.st_mode))
    if (
        is_own
        and not outcome.exits
        and isinstance(outcome.error, CommandNotFoundError | CommandNotExecutableError)
    ):
        _remove_report(file.path)
        return outcome
    text = render_run(plan, mask_secrets(spec), outcome, began_at)
    error = _write(file, text)
    return outcome.replace(write_errors=(*outcome.write_errors, error)) if error else outcome


def _write(file: ReportFile, text: str) -> str:
    """Write a report; an error is printed and returned, "" for none."""
    try:
        write_report(file, text)
    except LaunchError as error:
        write_stderr(render_error(error, read_message_width()))
        return error.message
    return ""


def _render_failure(spec: RunSpec, outcome: Outcome, unseen: str, settings: Settings) -> str:
    """Render the report of a run without results; `unseen` is why no rank was verified."""
    if settings.verify is not None:
        outcome = outcome.replace(verified=make_unseen(unseen, strict=settings.verify == STRICT))
    return render_run(None, spec, outcome, time.time())


def report_failure(settings: Settings, error: Exception) -> None:
    """Write the report of a run that failed before it started."""
    run_id = settings.run_id or choose_run_id(None)
    try:
        filled = fill_paths(settings, run_id)
        file = _prepare(filled)
    except (OmpbindError, OSError):
        return  # this error is shown once the other is corrected
    explained = error if isinstance(error, OmpbindError) else OmpbindError(str(error))
    spec = mask_secrets(RunSpec(argv=settings.words, run_id=run_id, base={}))
    outcome, unseen = Outcome(exits=(), error=explained), f"{NO_RANK}: {explained.message}"
    _write(file, _render_failure(spec, outcome, unseen, settings))


def remove_earlier_report(ctx: VerbContext) -> None:
    """Remove the report of an earlier run that a refused command line names; other files stay.

    The name may be a mistake too.
    """
    is_typed = ctx.sources.level("report") is ValueLevel.COMMAND_LINE
    path = (ctx.params["report"] if is_typed else os.environ.get("OMPBIND_REPORT")) or ""
    if not ctx.params["dry_run"]:
        _remove_report(path)


def _remove_report(path: str) -> None:
    with suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if _MARK in file.read(HEAD_BYTES):
            os.unlink(path)
