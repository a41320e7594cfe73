"""The report of `ompbind run`: before, after and instead of a run.

A run that fails before it starts writes a report too. Otherwise the report of an earlier run would look like
the report of this run.
"""

from __future__ import annotations

import time

from ompbind.cli.console import read_message_width, write_stderr
from ompbind.cli.options.running import ALL_VALUES
from ompbind.cli.options.values import Values
from ompbind.cli.run_settings import fill_paths, make_run_id
from ompbind.errors import LaunchError, OmpbindError, OptionError
from ompbind.execution.outcome import Outcome, was_interrupted
from ompbind.planning.rank_command import RunSpec

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    # few runs write a report
    from ompbind.execution.report_file import ReportFile

_REFUSED_WAIT_S = 1.0  # for the reader of a named pipe; the error is printed after that
_HEAD_BYTES = 100
"""Bytes from the start of a file that show whether it is a report."""


def hide_secrets(spec: RunSpec, options: Mapping[str, Any]) -> RunSpec:
    """Return what ranks have in common as reports and messages show it, without secret values."""
    if options["report_env"] == ALL_VALUES:
        return spec
    from ompbind.planning.secret_values import mask_secrets  # late: most runs show nothing

    return mask_secrets(spec)


def open_report(options: Mapping[str, Any], spec: RunSpec) -> ReportFile:
    """Check before the start that the report of --report can be written.

    If other users could take its name, or if the run may be killed while it waits, an unfinished report is
    written there now. Raises RequestError.
    """
    from ompbind.execution.report_file import prepare_report, write_report  # late: few runs write a report

    file = prepare_report(options["report"], options["log_dir"] or "")
    if not file.can_be_taken and (options["wait"] is None or file.directory is None):
        return file
    write_report(file, _render_failure(hide_secrets(spec, options), LaunchError("the run has not finished")))
    return prepare_report(options["report"], options["log_dir"] or "")


def finish_report(file: ReportFile, outcome: Outcome, text: str, options: Mapping[str, Any]) -> Outcome:
    """Write the report of a run; an error is printed, and added to the write errors of the outcome."""
    from ompbind.execution.report_file import READER_WAIT_S  # late, as above

    stopped = outcome.stop_requested or was_interrupted(outcome)
    error = _write(file, text, options["grace"] if stopped else READER_WAIT_S)
    return outcome.replace(write_errors=(*outcome.write_errors, error)) if error else outcome


def _write(file: ReportFile, text: str, wait_s: float) -> str:
    """Write a report; an error is printed and returned, "" for none."""
    from ompbind.execution.report_file import write_report
    from ompbind.report.text import render_error

    try:
        write_report(file, text, wait_s)
    except LaunchError as error:
        write_stderr(render_error(error, read_message_width()))
        return error.message
    return ""


def _render_failure(spec: RunSpec, error: OmpbindError) -> str:
    from ompbind.report.run_json import render_run

    return render_run(None, spec, Outcome(exits=(), error=error), time.time())


def report_failure(values: Values, error: Exception) -> None:
    """Write the report of a run that failed before it started, if its options name a file.

    After a usage error, only a report or an empty file is replaced: the name may be a mistake too.
    """
    if values["report"] is None or values["dry_run"]:
        return
    from ompbind.execution.report_file import prepare_report

    run_id = values["run_id"] or make_run_id()
    try:
        paths = fill_paths(values, run_id)
        file = prepare_report(paths["report"], paths.get("log_dir", ""))
        if isinstance(error, OptionError) and _has_other_content(file):
            return
    except (OmpbindError, OSError):
        return  # this error is shown once the other is corrected
    explained = error if isinstance(error, OmpbindError) else OmpbindError(str(error))
    spec = hide_secrets(RunSpec(argv=values.words, run_id=run_id, base={}), values)
    _write(file, _render_failure(spec, explained), _REFUSED_WAIT_S)


def _has_other_content(file: ReportFile) -> bool:
    from ompbind.execution.report_file import read_head
    from ompbind.report.run_json import SCHEMA

    head = read_head(file, _HEAD_BYTES)
    return bool(head) and SCHEMA.encode() not in (head or b"")
