"""The session of `bench`, once its candidates are known: it runs, is saved, and its results are shown."""

import gc
import json
import math
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from textwrap import indent

from ompbind import __version__
from ompbind.bench.compare_sessions import compare_sessions, find_failures
from ompbind.bench.conditions import read_hardware
from ompbind.bench.decision import conclude, find_next
from ompbind.bench.events import (
    Event,
    make_conclusion_event,
    make_header,
    make_run_event,
    mask_session,
    render_event,
)
from ompbind.bench.interrupts import SignalMask, catch_interrupts, delay_interrupts, ignore_interrupts
from ompbind.bench.metrics import make_metrics
from ompbind.bench.records import NextRound, Refusal, Rules, Session, Status
from ompbind.bench.results_file import open_results, read_results
from ompbind.bench.run_candidate import run_candidate
from ompbind.bench.session import (
    INTERRUPTED,
    SessionCalls,
    SessionListener,
    estimate_most_s,
    run_session,
)
from ompbind.bench.start_ranks import CandidateStart, MeasuringSettings, check_commands
from ompbind.cli.bench_options import render_words
from ompbind.cli.bench_settings import BenchSettings
from ompbind.cli.config_defaults import ENV
from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.options import find_options
from ompbind.cli.verbs import CONFIGURATION
from ompbind.cpuset import count
from ompbind.errors import OptionError, RequestError
from ompbind.execution.job_control import exit_by_interrupt
from ompbind.execution.report_file import ReportFile, prepare_report, write_report
from ompbind.machine.model import Machine
from ompbind.planning.request import Sharing
from ompbind.record import Record
from ompbind.registry.claims import Claim
from ompbind.registry.registry import Registry, make_run_identity
from ompbind.report.bench.export import EXPORTS
from ompbind.report.bench.measurements import list_choices, render_run_time
from ompbind.report.bench.sessions import render_failure, render_sessions
from ompbind.report.bench.table import render_bench
from ompbind.report.text import render_age

_FAILED = 1


_EXCEEDED = 1


_SEEDS = 1 << 32


class ExportFile(Record):
    """A format of --export, and its file; None is standard output."""

    format: str
    file: ReportFile | None


class _Listeners:
    """Several listeners as one, which may be none."""

    def __init__(self, listeners: Iterable[SessionListener]) -> None:
        self._listeners = tuple(listeners)

    def show_start(self, session: Session, upcoming: NextRound, candidate: str) -> None:
        for listener in self._listeners:
            listener.show_start(session, upcoming, candidate)

    def show_event(self, event: Event) -> None:
        for listener in self._listeners:
            listener.show_event(event)


class TimeNote:
    """Prints how long a session takes at most, as soon as the time of a run is known."""

    def __init__(self, budget_s: float | None) -> None:
        """Print the time once; a session stops after its budget."""
        self._budget_s = math.inf if budget_s is None else budget_s
        self._is_printed = False
        self._began: tuple[float, int] | None = None  # when, and after how many runs

    def show_start(self, session: Session, upcoming: NextRound, candidate: str) -> None:
        """Print the time at the start of the second run, or of the first run of a resumed session."""
        began_s, earlier = self._began = self._began or (time.monotonic(), len(session.runs))
        most_s = None if self._is_printed else estimate_most_s(session, upcoming)
        if most_s is not None:
            self._is_printed = True
            run_s = median(max(run.wall_s) for run in session.runs if run.wall_s)
            between_s = (
                time.monotonic()
                - began_s
                - sum(max(run.wall_s, default=0.0) for run in session.runs[earlier:])
            )
            most_s *= 1 + max(0.0, between_s) / (run_s * max(1, len(session.runs) - earlier))
            most = render_age(min(most_s, self._budget_s))
            text = f"a run takes {render_run_time(run_s)}, so the session takes {most} at most"
            print_message(f"note: {text}; a clear result needs less")

    def show_event(self, event: Event) -> None:
        """Do nothing: the time is known at the start of a run."""


class EventStream:
    """Prints each event on standard output."""

    def __init__(self, session: Session) -> None:
        """Print the events of a session until now: its header, and runs of an earlier start."""
        self.show_event(make_header(session))
        for run in session.runs:
            self.show_event(make_run_event(run))

    def show_start(self, session: Session, upcoming: NextRound, candidate: str) -> None:
        """Do nothing: the event of a run comes at its end."""

    def show_event(self, event: Event) -> None:
        """Print an event as one line."""
        write_stdout(render_event(event))


def run_bench(
    settings: BenchSettings, starts: Sequence[CandidateStart], refusals: Sequence[Refusal], machine: Machine
) -> int:
    """Run or resume a session, show its results, and return the exit code.

    The code is 0; 1 if no run has succeeded; 128 and the number of the signal that stopped the session.
    """
    exports = prepare_exports(settings)
    check_commands(starts)
    measuring = make_measuring_settings(settings)
    new = _make_session(settings, starts, refusals, machine).replace(metrics=measuring.metrics)
    gc.enable()  # __main__ disables it for short commands; a session can last for hours
    with (
        catch_interrupts() as arrived,
        _open_saved(settings, new) as (session, save),
        delay_interrupts() as signal_mask,  # `ompbind stop` finds the session from here on
        _register(settings, starts) as claim,
    ):
        with open_listener(mask_session(session), settings) as listener:
            calls = SessionCalls(
                find_next=find_next,
                run=lambda start, slot, *, verify: run_candidate(start, measuring, slot, verify=verify),
                save=save,
                listener=listener,
            )
            signals = SignalMask(signal.SIG_SETMASK, signal_mask)
            end = run_session(session, starts, calls, settings.budget, signals)
        show_results(settings, end.session, exports)
        if end.error:
            raise end.error
        code = _find_exit_code(end.session, arrived)
        if claim:
            claim.publish_exit(code)
        ignore_interrupts()
    if code == 128 + signal.SIGINT:
        exit_by_interrupt()
    return code


@contextmanager
def _register(settings: BenchSettings, starts: Sequence[CandidateStart]) -> Iterator[Claim | None]:
    """Register the session as a live run until the end of the block; None where that is not possible.

    It has one claim for all its runs, for the CPUs of all candidates. Raises ClaimError as `run` does.
    """
    plans = [start.plan for start in starts if start.plan]
    sharing = plans[0].request.sharing if plans else Sharing.SHARE
    with Registry(sharing, make_run_identity(settings.planning.run_id or "")) as registry:
        claim = registry.register_session(plans, settings.planning.configuration.digest)
    try:
        yield claim
    finally:
        if claim:
            claim.release()


def _make_session(
    settings: BenchSettings, starts: Sequence[CandidateStart], refusals: Sequence[Refusal], machine: Machine
) -> Session:
    sources = settings.planning.sources
    return Session(
        version=__version__,
        started=time.time(),
        hardware=read_hardware(machine),
        command=settings.command,
        options=render_words(sources, sources.options.values()),
        rules=make_rules(settings),
        candidates=tuple(start.candidate for start in starts),
        refusals=tuple(refusals),
    )


def make_rules(settings: BenchSettings) -> Rules:
    """Make what the session decides and when it ends; without --seed the order of rounds is random."""
    seed = settings.seed
    return Rules(
        same_work=settings.has_same_work,
        matters=settings.matters,
        max_rounds=settings.max_rounds,
        seed=random.SystemRandom().randrange(_SEEDS) if seed is None else seed,
    )


def make_measuring_settings(settings: BenchSettings) -> MeasuringSettings:
    """Make the settings of each run of the candidates; raises PositionError for a wrong pattern."""
    return MeasuringSettings(
        run_id=settings.planning.run_id or "",
        metrics=make_metrics(settings.metric, higher=settings.higher),
        timeout_s=settings.timeout or None,
        grace_s=settings.grace,
    )


@contextmanager
def open_listener(session: Session, settings: BenchSettings) -> Iterator[SessionListener]:
    """Yield what shows a session: events with --format jsonl, and the time left.

    On a terminal, standard error has a line with the progress; elsewhere only a note after the first run.
    """
    streams = settings.format == "jsonl"
    listeners: list[SessionListener] = [EventStream(session)] if streams else []
    is_mixed = streams and sys.stdout is not None and sys.stdout.isatty()
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    can_replace_lines = is_terminal and os.environ.get("TERM", "dumb") != "dumb"
    if settings.planning.quiet or is_mixed or not can_replace_lines:
        notes = [] if settings.planning.quiet or is_mixed else [TimeNote(settings.budget)]
        yield _Listeners([*listeners, *notes])
        return
    from ompbind.cli.bench_progress import open_progress_line  # noqa: PLC0415 - door: rich

    with open_progress_line(settings.budget) as line:
        yield _Listeners([*listeners, line])


@contextmanager
def _open_saved(settings: BenchSettings, new: Session) -> Iterator[tuple[Session, Callable[[Event], None]]]:
    """Yield the session with the runs of its results file, and the function that saves an event there.

    The file has no secret values, so only runs, the seed and the start of the session come from it.
    """
    if not settings.results:
        yield new, lambda event: None
        return
    results, saved = open_results(settings.results, mask_session(new), any_seed=settings.seed is None)
    if saved.runs and not settings.planning.quiet:
        print_message(f"{settings.results} has {count(len(saved.runs), 'run')}: the session is resumed")
    kept = {"started": saved.started, "rules": saved.rules, "runs": saved.runs, "ended": saved.ended}
    try:
        yield new.replace(**kept), results.append
    finally:
        results.close()


def _find_exit_code(session: Session, arrived: Sequence[int]) -> int:
    if session.ended == INTERRUPTED:  # the ranks may get Ctrl-C before this process
        return 128 + (arrived[0] if arrived else signal.SIGINT)
    return 0 if any(run.status is Status.OK for run in session.runs) else _FAILED


def prepare_exports(settings: BenchSettings) -> tuple[ExportFile, ...]:
    """Check that all exports can be written; raises RequestError."""
    return tuple(
        ExportFile(format=name, file=prepare_report(path) if path else None) for name, path in settings.export
    )


def show_results(settings: BenchSettings, session: Session, exports: Sequence[ExportFile]) -> None:
    """Print and export what a session found.

    Standard output has the conclusion as an event, or an export without a file, or else the table. All have
    no secret values.
    """
    conclusion, masked = conclude(session), mask_session(session)
    if settings.format == "jsonl":
        write_stdout(render_event(make_conclusion_event(conclusion)))
    elif all(export.file for export in exports):
        write_stdout(render_bench(masked, conclusion, read_screen(), verbose=settings.planning.verbose))
        found = [choice.candidate for choice in list_choices(masked, conclusion)]
        if len(found) == 1 and found[0].options and not found[0].words:
            lines = indent(render_preset("best", found[0].options), "    ")
            write_stdout(f"\nfor 'ompbind run --preset best', in ompbind.toml:\n{lines}")
    for export in exports:
        text = EXPORTS[export.format].render(masked, conclusion)
        if export.file:
            write_report(export.file, text)
        else:
            write_stdout(text)


def render_preset(name: str, words: Sequence[str]) -> str:
    """Return the table [preset.NAME] of ompbind.toml that has the options of a candidate.

    Strings of JSON are strings of TOML too.
    """
    options, left = {option.key: option for option in find_options("run")}, deque(words)
    values: dict[str, list[str]] = {}
    while left:
        key = left.popleft().removeprefix("--")
        has_value = key in options and not options[key].is_flag
        values[key] = [*values.get(key, ()), left.popleft()] if has_value else []
    lines = [f"[preset.{name}]"]
    for key, texts in values.items():
        quoted = [json.dumps(text, ensure_ascii=False) for text in texts]
        value = "true" if not texts else quoted[0] if len(texts) == 1 else f"[{', '.join(quoted)}]"
        if key == ENV and texts:
            pairs = (map(json.dumps, text.split("=", 1)) for text in texts)
            value = f"{{ {', '.join(map(' = '.join, pairs))} }}"
        elif len(texts) == 1 and options[key].number and texts[0].isdecimal():
            value = texts[0]
        if key not in options or options[key].section != CONFIGURATION:
            lines.append(f"{key} = {value}")
    return "\n".join(lines)


def run_show(settings: BenchSettings) -> int:
    """Show a session, or compare several; return 1 if the last one exceeds --fail-above, else 0."""
    if not settings.planning.words:
        raise OptionError("--show: the files are missing", hint="give files of --results after the options")
    sessions = [read_results(path) for path in settings.planning.words]
    if len(sessions) > 1:
        return _show_several(settings, sessions)
    if settings.fail_above is not None:
        hint = "give the file of an earlier session first, then the file of a later one"
        raise RequestError("--fail-above: only one session is given", hint=hint)
    show_results(settings, sessions[0], prepare_exports(settings))
    return 0


def _show_several(settings: BenchSettings, sessions: Sequence[Session]) -> int:
    if settings.export:
        hint = "export each session with a command of its own"
        raise RequestError("--export: several sessions are given", hint=hint)
    comparison = compare_sessions(sessions)
    write_stdout(render_sessions(comparison, read_screen()))
    if settings.fail_above is None:
        return 0
    failures = find_failures(comparison, settings.fail_above)
    for failure in failures:
        print_message(f"--fail-above: {render_failure(failure, settings.fail_above)}")
    unknown = [
        change for change in comparison.changes if change.ratio is not None and change.interval is None
    ]
    if unknown:
        few = count(len(unknown), "candidate")
        print_message(f"--fail-above: not checked for {few} with too few runs for an interval")
    return _EXCEEDED if failures else 0
