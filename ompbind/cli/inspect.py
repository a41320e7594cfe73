"""`ompbind inspect`: the affinity masks and last CPUs of the threads of running processes."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ompbind.cli.console import print_message, write_stdout
from ompbind.cli.description import Description
from ompbind.cli.options.values import Values
from ompbind.cli.terminal import read_screen
from ompbind.cli.verb import Verb
from ompbind.errors import InspectError
from ompbind.severity import Severity

if TYPE_CHECKING:
    from ompbind.inspection.rank_processes import Inspection
    from ompbind.inspection.targets import Target

EXAMPLES = (
    ("Every live run", "ompbind inspect --all"),
    ("The run whose name begins with nightly-, each thread on a line", "ompbind inspect nightly- -v"),
    ("Any process, with its descendants", "ompbind inspect 4711"),
    ("Only what is wrong in these processes", "ompbind inspect 4711 --problems"),
    ("A live view of all runs", "ompbind inspect --all --watch"),
    ("All runs as JSON", "ompbind inspect --all --format json"),
)


def _complete(text: str) -> list[str]:
    from ompbind.inspection.targets import read_visible_runs

    return sorted({run.run_id for run in read_visible_runs()})


HELP = """Show the affinity mask and last CPU of each thread of running processes, and the issues found.

A process is shown with all its descendants, a run with all its ranks. Ranks are compared with their
plan; for other processes, ompbind checks whether threads compete for CPUs. Nothing is stopped or changed.
The exit code is 1 if there is an error.
"""


def _inspect_targets(options: Values) -> int:
    """Show the affinity mask and last CPU of each thread of running processes, and the issues found."""
    from ompbind.inspection.targets import find_target  # late, as all below: for this verb alone

    watches = options["watch"] is not None
    interval_s, what = _read_interval(options["watch"] or "", options.words)
    _check_options(what, {**options, "watch": watches})
    target = None if options["all"] else find_target(what)
    if watches:
        from ompbind.cli.inspect_watch import watch_target

        return watch_target(target, interval_s)
    return _show(target, options)


def _read_interval(text: str, what: tuple[str, ...]) -> tuple[float | None, tuple[str, ...]]:
    """Return the seconds of --watch, None for the default, and what to inspect.

    A word after --watch may be the name of a run.
    """
    if not text:
        return None, what
    try:
        seconds = float(text)
    except ValueError:
        return None, (text, *what)
    if 0.1 <= seconds <= 3600:
        return seconds, what
    hint = "write a process before --watch, as in 'ompbind inspect 4711 --watch'"
    raise InspectError(f"--watch {text}: the interval must be 0.1 to 3600 seconds", hint=hint)


def _check_options(what: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Raise InspectError for options that contradict each other."""
    if options["all"] == bool(what):
        text = "--all excludes names of processes and runs" if what else "no process or run is given"
        raise InspectError(text, hint="use 'ompbind inspect 4711', or 'ompbind inspect --all'")
    if options["watch"] and options["format"] == "json":
        hint = "run 'ompbind inspect --format json' repeatedly instead"
        raise InspectError("--watch cannot print JSON", hint=hint)
    if options["watch"] and options["verbose"]:
        hint = "--watch shows the busiest threads; use -v without --watch to show all threads"
        raise InspectError("--watch excludes -v", hint=hint)
    if options["watch"] and options["problems"]:
        raise InspectError("--watch excludes --problems", hint="--watch shows ranks with errors first")


def _show(target: "Target | None", options: Mapping[str, Any]) -> int:
    from ompbind.inspection.targets import find_all_runs
    from ompbind.report.inspect import render_inspection, render_inspection_json, select_problems
    from ompbind.report.ps import NONE_LIVE

    target = target or find_all_runs()
    inspection, problems = _inspect(target), options["problems"]
    if options["format"] == "json":
        write_stdout(render_inspection_json(select_problems(inspection) if problems else inspection))
    elif not target.pids and not target.runs:
        write_stdout(NONE_LIVE)
    else:
        text = render_inspection(inspection, each=options["verbose"], problems=problems, screen=read_screen())
        write_stdout(text)
    return 1 if inspection.severity is Severity.ERROR else 0


def _inspect(target: "Target") -> "Inspection":
    """Inspect a target; while more threads are runnable than there are CPUs, look again for 10 seconds.

    If the cgroup of a process was throttled before, look again once, to see whether it still is.
    """
    from ompbind.inspection.read_load import CONFIRM_STEPS_S, add_load, is_suspicious, was_throttled
    from ompbind.inspection.targets import inspect as read_target

    streaks, inspection = add_load({}, read_target(target))
    for seconds in CONFIRM_STEPS_S:
        is_first = seconds == CONFIRM_STEPS_S[0]
        if not (is_suspicious(streaks) or (is_first and was_throttled(streaks))):
            break
        if seconds == CONFIRM_STEPS_S[-1]:
            what = "whether more threads are runnable than there are CPUs"
            print_message(f"checking for {seconds:.0f} s {what}")
        time.sleep(seconds)
        streaks, inspection = add_load(streaks, read_target(target))
    return inspection


VERB = Verb(
    name="inspect",
    run=_inspect_targets,
    describe=lambda: Description(
        help=HELP, summary="Show each running thread's affinity mask and last CPU.", examples=EXAMPLES
    ),
    words="targets",
    complete_word=_complete,
)
