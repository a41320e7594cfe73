"""`ompbind inspect`: the affinity masks and last CPUs of the threads of running processes."""

import time

import click

from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.inspect_watch import watch_target
from ompbind.cli.settings import make_settings
from ompbind.cli.verb import Verb
from ompbind.errors import InspectError
from ompbind.inspection import targets
from ompbind.inspection.rank_processes import Inspection
from ompbind.inspection.read_load import CONFIRM_STEPS_S, add_load, is_suspicious
from ompbind.inspection.targets import Target, find_all_runs, find_target, read_visible_runs
from ompbind.record import Record
from ompbind.report.inspect import render_inspection, render_inspection_json, select_problems
from ompbind.report.ps import NONE_LIVE
from ompbind.text import Severity

EXAMPLES = (
    ("Every live run", "ompbind inspect --all"),
    ("The run whose name begins with nightly-, each thread on a line", "ompbind inspect nightly- -v"),
    ("Any process, with its descendants", "ompbind inspect 4711"),
    ("Only what is wrong in these processes", "ompbind inspect 4711 --problems"),
    ("A live view of all runs", "ompbind inspect --all --watch"),
    ("All runs as JSON", "ompbind inspect --all --format json"),
)


HELP = """Show the affinity mask and last CPU of each thread of running processes, and the issues found.

A process is shown with all its descendants, a run with all its ranks. Ranks are compared with their
plan; for other processes, ompbind checks whether threads compete for CPUs. Nothing is stopped or changed.
The exit code is 1 if there is an error.
"""


class InspectSettings(Record):
    """The fields are the options of the same names, and the words that name processes and runs."""

    all: bool
    verbose: bool
    problems: bool
    format: str
    watch: str | None
    words: tuple[str, ...]


def inspect(ctx: click.Context) -> int:
    """Show the affinity mask and last CPU of each thread of running processes, and the issues found."""
    settings = make_settings(InspectSettings, ctx.params)
    interval_s, what = _read_interval(settings.watch or "", settings.words)
    _check_options(what, settings)
    target = None if settings.all else find_target(what)
    if settings.watch is not None:
        return watch_target(target, interval_s)
    target = target or find_all_runs()
    inspection, problems = _take_inspection(target), settings.problems
    if settings.format == "json":
        write_stdout(render_inspection_json(select_problems(inspection) if problems else inspection))
    elif not target.pids and not target.runs:
        write_stdout(NONE_LIVE)
    else:
        text = render_inspection(inspection, each=settings.verbose, problems=problems, screen=read_screen())
        write_stdout(text)
    return 1 if inspection.severity is Severity.ERROR else 0


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


def _check_options(what: tuple[str, ...], settings: InspectSettings) -> None:
    """Raise InspectError for options that contradict each other."""
    if settings.all == bool(what):
        text = "--all excludes names of processes and runs" if what else "no process or run is given"
        raise InspectError(text, hint="use 'ompbind inspect 4711', or 'ompbind inspect --all'")
    if settings.watch is not None and settings.format == "json":
        hint = "run 'ompbind inspect --format json' repeatedly instead"
        raise InspectError("--watch cannot print JSON", hint=hint)
    if settings.watch is not None and settings.verbose:
        hint = "--watch shows the busiest threads; use -v without --watch to show all threads"
        raise InspectError("--watch excludes -v", hint=hint)
    if settings.watch is not None and settings.problems:
        raise InspectError("--watch excludes --problems", hint="--watch shows ranks with errors first")


def _take_inspection(target: Target) -> Inspection:
    """Inspect a target twice, to see its load; if too many threads are runnable, again 10 seconds later."""
    streaks, inspection = add_load({}, targets.inspect(target, memory=False))
    for seconds in CONFIRM_STEPS_S:
        if seconds == CONFIRM_STEPS_S[-1]:
            if not is_suspicious(streaks):
                break
            what = "whether more threads are runnable than there are CPUs"
            print_message(f"checking for {seconds:.0f} s {what}")
        time.sleep(seconds)
        streaks, inspection = add_load(streaks, targets.inspect(target))
    return inspection


VERB = Verb(
    "inspect",
    inspect,
    help=HELP,
    summary="Show each running thread's affinity mask and last CPU.",
    page="inspecting.md",
    examples=EXAMPLES,
    words="targets",
    complete_word=lambda _: sorted({run.run_id for run in read_visible_runs()}),
)
