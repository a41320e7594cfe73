"""`ompbind inspect`: the affinity masks and last CPUs of the threads of running processes."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext

import click

from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.option import Option
from ompbind.cli.ps import NONE_LIVE
from ompbind.cli.settings import make_settings
from ompbind.cli.verb import Verb, make_format_option
from ompbind.errors import InspectError
from ompbind.execution.signals import find_unignored
from ompbind.inspection import targets
from ompbind.inspection.rank_processes import Inspection
from ompbind.inspection.read_load import CONFIRM_STEPS_S, Streaks, add_load, is_suspicious
from ompbind.inspection.targets import Target, find_all_runs, find_target, read_visible_runs
from ompbind.record import Record
from ompbind.report.inspect import render_inspection, render_inspection_json, select_problems
from ompbind.text import Severity

EXAMPLES = (
    ("Every live run", "ompbind inspect --all"),
    ("The run whose name begins with nightly-, each thread on a line", "ompbind inspect nightly- -v"),
    ("Any process, with its descendants", "ompbind inspect 4711"),
    ("Only what is wrong in these processes", "ompbind inspect 4711 --problems"),
    ("All runs, again every 2 seconds", "ompbind inspect --all --watch"),
    ("All runs as JSON", "ompbind inspect --all --format json"),
)

_FIRST_S = 0.3  # seconds between the first two inspections of --watch, whose difference is shown first

_MOST_SHARE = 0.007
"""CPU time of --watch at most, divided by wall time, unless the user has chosen the interval."""

INTERVAL_S = 2
"""Seconds between two inspections of --watch, where none are given."""

OPTIONS = (
    Option("--all", verbs=("inspect",), flag=True, help="All live runs on this machine"),
    Option("-v", "--verbose", verbs=("inspect",), flag=True,
           help="A line for each thread, and all thread pool variables"),
    Option("--problems", verbs=("inspect",), flag=True,
           help="Only the summary, and ranks and processes with issues"),
    make_format_option("inspect", "table", "json"),
    Option("--watch", verbs=("inspect",), bare="", metavar="[SECONDS]",
           help=f"Repeat every SECONDS, with the CPU use since the last time (default {INTERVAL_S})"),
)  # fmt: skip


class InspectSettings(Record):
    """The fields are the options of the same names, and the words that name processes and runs."""

    all: bool
    verbose: bool
    problems: bool
    format: str
    watch: str | None
    words: tuple[str, ...]


def inspect(ctx: click.Context) -> int:
    """Show the affinity mask and last CPU of each thread of running processes, and the issues found.

    A process is shown with all its descendants, a run with all its ranks. Ranks are compared with their
    plan; for other processes, ompbind checks whether threads compete for CPUs. Nothing is stopped or changed.
    The exit code is 1 if there is an error.
    """
    settings = make_settings(InspectSettings, ctx.params)
    interval_s, what = _read_interval(settings.watch or "", settings.words)
    _check_options(what, settings)
    target = None if settings.all else find_target(what)
    if settings.watch is not None:
        return _watch(target, interval_s, settings)
    target = target or find_all_runs()
    inspection = _take_inspection(target)
    if settings.format == "json":
        write_stdout(render_inspection_json(select_problems(inspection) if settings.problems else inspection))
    elif not target.pids and not target.runs:
        write_stdout(NONE_LIVE)
    else:
        write_stdout(_render(inspection, settings))
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


def _render(
    inspection: Inspection, settings: InspectSettings, shares: Mapping[int, float] | None = None
) -> str:
    each, problems = settings.verbose, settings.problems
    return render_inspection(inspection, each=each, problems=problems, screen=read_screen(), shares=shares)


def _watch(target: Target | None, interval_s: float | None, settings: InspectSettings) -> int:
    """Show inspections until all processes have exited or the user presses Ctrl-C; None is all live runs.

    On a terminal each replaces the previous inspection, on the alternate screen; the last one stays if all
    processes have exited. Elsewhere they follow each other. Returns the exit code: 1 if the last inspection
    with processes has an error.
    """
    from rich.console import ConsoleDimensions  # noqa: PLC0415 - door: rich
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def suspend(*_: object) -> None:
        live.stop()
        signal.raise_signal(signal.SIGSTOP)  # returns when the shell continues this process
        live.start()

    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    live = Live(screen=True, auto_refresh=False)
    for number in find_unignored((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)):
        signal.signal(number, signal.default_int_handler)
    if is_terminal:
        signal.signal(signal.SIGTSTP, suspend)
    text, severity = "", Severity.OK
    try:
        with live if is_terminal else nullcontext():
            for inspection, shares, pause_s in _take_inspections(target, interval_s):
                title = f"{time.strftime('%H:%M:%S')}  every {pause_s:.3g} s"
                shown = _render(inspection, settings, shares)
                if inspection.groups:
                    text, severity = shown, inspection.severity
                if is_terminal:
                    screen = read_screen()
                    live.console.size = ConsoleDimensions(screen.width, screen.height)  # not of LINES
                    cut = _cut([title, *shown.split("\n")], screen.height)
                    live.update(Text(cut, no_wrap=True), refresh=True)
                elif inspection.groups:
                    write_stdout(f"{title}\n{shown}\n")
        if is_terminal and text:
            write_stdout(text)
        print_message("no processes left to watch")
    except KeyboardInterrupt:
        pass
    return 1 if severity is Severity.ERROR else 0


def _cut(lines: Sequence[str], height: int) -> str:
    """Join lines for a screen; the last line says how many are left out."""
    more = len(lines) - height + 1
    cut = [*lines[: height - 1], f"... {more} more lines; --problems shows fewer"] if more > 1 else lines
    return "\n".join(cut)


def _take_inspections(
    target: Target | None, interval_s: float | None
) -> Iterator[tuple[Inspection, dict[int, float], float]]:
    """Yield inspections, the share of a CPU that each thread used, by TID, and the seconds until the next.

    Ends when all processes have exited and the runs are no longer live. Without an interval, inspections are
    so rare that they take less than 1 % of a CPU.
    """
    streaks: Streaks = {}
    seen, busy_s, at_s, pause_s = False, dict[int, float](), 0.0, min(_FIRST_S, interval_s or _FIRST_S)
    while True:
        spent_s, before_s, busy_before_s = time.thread_time(), at_s, busy_s
        runs = target or find_all_runs()
        streaks, inspection = add_load(streaks, targets.inspect(runs, memory=False))
        names = {run.run_id for run in runs.runs}
        is_live = inspection.groups or any(run.run_id in names for run in read_visible_runs())
        if not is_live and (target or seen):
            return
        seen, at_s = seen or bool(inspection.groups), time.monotonic()
        threads = [thread for group in inspection.groups for p in group.processes for thread in p.threads]
        busy_s = {thread.tid: thread.busy_s or 0.0 for thread in threads}
        if before_s:
            span_s = at_s - before_s
            shares = {tid: max(0.0, s - busy_before_s.get(tid, 0.0)) / span_s for tid, s in busy_s.items()}
            pause_s = interval_s or max(float(INTERVAL_S), (time.thread_time() - spent_s) / _MOST_SHARE)
            yield inspection, shares, pause_s
        time.sleep(pause_s)


VERB = Verb(
    "inspect",
    inspect,
    summary="Show each running thread's affinity mask and last CPU.",
    page="inspecting.md",
    examples=EXAMPLES,
    words="targets",
    complete_word=lambda _: sorted({run.run_id for run in read_visible_runs()}),
)
