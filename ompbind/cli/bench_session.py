"""The session of `bench`, once its candidates are known: it runs, is saved, and its results are shown."""

import gc
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ompbind import __version__
from ompbind.bench.conditions import read_hardware
from ompbind.bench.counters import explain_missing, find_events
from ompbind.bench.decision import find_next
from ompbind.bench.events import Event, mask_session
from ompbind.bench.interrupts import catch_interrupts
from ompbind.bench.metrics import make_metrics
from ompbind.bench.records import Refusal, Rules, Session, Status
from ompbind.bench.results_file import open_results
from ompbind.bench.run_candidate import run_candidate
from ompbind.bench.service import check_service, find_load_cpus
from ompbind.bench.session import INTERRUPTED, SessionCalls, run_session
from ompbind.bench.start_ranks import CandidateStart, MeasuringSettings, Service, check_commands
from ompbind.cli.bench_progress import open_listener
from ompbind.cli.bench_results import check_choice, prepare_exports, save_choice, show_results
from ompbind.cli.bench_variations import render_words
from ompbind.cli.console import print_message
from ompbind.cli.settings import BenchSettings
from ompbind.cpuset import count
from ompbind.execution.job_control import exit_by_interrupt
from ompbind.machine.model import Machine

_FAILED = 1


def run_bench(
    settings: BenchSettings, starts: Sequence[CandidateStart], refusals: Sequence[Refusal], machine: Machine
) -> int:
    """Run or resume a session, show its results, and return the exit code.

    The code is 0; 1 if no run has succeeded; 128 and the number of the signal that stopped the session.
    """
    exports = prepare_exports(settings)
    check_choice(settings)
    check_commands(starts)
    measuring = make_measuring_settings(settings, starts)
    new = _make_session(settings, starts, refusals, machine).replace(metrics=measuring.metrics)
    if not settings.planning.quiet:
        for text in explain_missing(find_events()):
            print_message(f"note: {text}")
    gc.enable()  # __main__ disables it for short commands; a session can last for hours
    with (
        _open_saved(settings, new) as (session, save),
        open_listener(mask_session(session), settings) as listener,
        catch_interrupts() as arrived,
    ):
        calls = SessionCalls(
            find_next=find_next,
            run=lambda start, slot, *, verify: run_candidate(start, measuring, slot, verify=verify),
            save=save,
            listener=listener,
        )
        end = run_session(session, starts, calls, settings.budget)
    conclusion = show_results(settings, end.session, exports)
    if end.error:
        raise end.error
    save_choice(settings, end.session, conclusion)
    return _find_exit_code(end.session, arrived)


def _make_session(
    settings: BenchSettings, starts: Sequence[CandidateStart], refusals: Sequence[Refusal], machine: Machine
) -> Session:
    sources = settings.planning.sources
    return Session(
        version=__version__,
        started=time.time(),
        hardware=read_hardware(machine),
        command=settings.planning.words,
        options=render_words(sources, sources.options.values()),
        duration_s=settings.duration,
        ready=settings.ready,
        load=settings.load or (),
        rules=make_rules(settings),
        candidates=tuple(start.candidate for start in starts),
        refusals=tuple(refusals),
    )


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
    """Return the exit code; after Ctrl-C this process is killed by it, so that a script stops too."""
    if session.ended == INTERRUPTED:
        number = arrived[0] if arrived else signal.SIGINT  # the ranks may get Ctrl-C before this process
        if number == signal.SIGINT:
            exit_by_interrupt()
        return 128 + number
    return 0 if any(run.status is Status.OK for run in session.runs) else _FAILED


_SEEDS = 1 << 32


def make_measuring_settings(settings: BenchSettings, starts: Sequence[CandidateStart]) -> MeasuringSettings:
    """Make the settings of each run of the candidates.

    Raises PositionError for a wrong pattern, port or placeholder, RequestError for a load generator without
    CPUs, and LaunchError for a load generator that cannot be executed.
    """
    made = MeasuringSettings(
        run_id=settings.planning.run_id or "",
        metrics=make_metrics(settings.metric, higher=settings.higher, combine=settings.combine),
        timeout_s=settings.timeout or None,
        grace_s=settings.grace,
        service=_make_service(settings),
        load_cpus=find_load_cpus(starts) if settings.load else None,
    )
    if made.service:
        check_service(starts, made)
    return made


def _make_service(settings: BenchSettings) -> Service | None:
    """Make what --duration, --ready and --load say; None where ranks are no servers."""
    if settings.duration is None:
        return None
    return Service(duration_s=settings.duration, ready=settings.ready, load=settings.load or ())


def make_rules(settings: BenchSettings) -> Rules:
    """Make what the session decides and when it ends; without --seed the order of rounds is random."""
    seed = settings.seed
    return Rules(
        same_work=settings.has_same_work,
        matters=settings.matters,
        max_rounds=settings.max_rounds,
        seed=random.SystemRandom().randrange(_SEEDS) if seed is None else seed,
    )
