"""The supervisor's main loop: start all ranks, forward signals, stop ranks, leave no process behind.

All signals are blocked until no rank can start now. Then the loop sleeps until a file is readable (signals,
the pidfd of a child, output), or a deadline is over: of --timeout, of the next signal of the escalation, of
orphans, of samples of --verify. All ranks that an event allows to start have started before it sleeps again.

A signal comes from the pipe of the foreground process, or from the pipe with signals to this process itself.
A termination signal stops the run, and a second one sends the next signal of the escalation without waiting.
`CONTRIBUTING.md` shows its way to the ranks.
"""

import os
import signal
import time
from collections.abc import Callable
from functools import partial

from ompbind.errors import LaunchError
from ompbind.execution import signals
from ompbind.execution.loop import NOW
from ompbind.execution.orphans import become_subreaper, kill_descendants, signal_parent, signal_rank
from ompbind.execution.outcome import Outcome
from ompbind.execution.process_pair import redirect_to_null, set_process_name
from ompbind.execution.ranks import ROOT, Run
from ompbind.execution.run_options import Reporter, RunOptions
from ompbind.execution.spawn import StartCommands, make_limit_error
from ompbind.inspection.verdict import VerificationResult
from ompbind.machine.read.linux_cgroup import read_oom_kills, read_throttling

SHORT_RUN_S = 0.005
"""Seconds after the start of the last rank. A run that finishes in this time does without some steps."""


def supervise(
    starts: StartCommands, options: RunOptions, foreground: signals.Foreground, reporter: Reporter
) -> Outcome:
    """Start all commands, wait until all have exited, and return how they exited.

    The outcome has an `error` if a rank could not be started or bound; no rank is left running then. The last
    line of --verify is written if a rank has exited.
    """
    run = None
    try:
        run = Run(starts, options, foreground, reporter)
        if options.hold:
            from ompbind.execution.hold import hold  # noqa: PLC0415 - door: --hold

            hold(run, options.hold)
        try:
            _start_all(run)
            run_loop(run)
            run.output.message(run.orphans.kill_rest())
            return _finish(run)
        except BaseException:
            _kill_ranks(run)  # after any error, they would have no supervisor
            kill_descendants(options.grace)
            raise
    except LaunchError as error:
        return Outcome(exits=(), error=error, verified=_verify(run))
    except OSError as error:
        limited = make_limit_error("cannot supervise the run", error)
        return Outcome(exits=(), error=limited, verified=_verify(run))
    finally:
        signals.block_signals()  # what is written now must be whole, and the exit code is decided
        os.close(foreground.pipe)


def _start_all(run: Run) -> None:
    """Start every rank that waits for no other, and handle events of running ranks in between.

    Signals from the foreground process, and its exit as end of file, are read from the beginning. Signals to
    this process itself stay blocked until all ranks have started. Then they are written to a second pipe.
    Handling SIGCHLD for each rank, and resetting some 60 handlers in each, would take time.

    A run that finishes within SHORT_RUN_S needs no name by which other processes find its supervisor. It does
    not count out-of-memory kills either: to run out of memory takes longer.
    """
    read_end, signal_pipe = os.pipe()
    os.set_blocking(signal_pipe, False)
    handle = partial(_handle_signals, run)
    for pipe in (read_end, run.foreground.pipe):
        run.loop.listen(pipe, partial(_read_signals, run, pipe, handle))

    def handle_timeout() -> None:
        if run.shutdown.note_timeout(time.monotonic()):
            run.output.message(f"timeout after {run.options.timeout:g} s")
            run.stop(signal.SIGTERM)

    if run.options.timeout:
        run.loop.call_at(run.loop.now() + run.options.timeout, handle_timeout)
    run.orphans.is_subreaper = become_subreaper()  # before any rank can exit
    if not (run.orphans.is_subreaper or run.options.keep_descendants):
        run.output.message("warning: daemons of ranks may be left: the system refuses to report them (prctl)")
    run.limit.check_free_files()
    has_name = False
    while run.start_next():
        run.loop.turn(0)
        if run.waiting and not has_name:
            set_process_name()  # only now, so that the first rank does not wait for it
            has_name = True
    signals.start_signal_pipe(signal_pipe, run.foreground.signal_mask)
    run.leave_rank_cpus()
    output = run.options.output
    # Output is tagged here, or later attempts inherit it.
    restarts = any(group.restart for group in run.options.groups.values())
    keeps_output = output.tag if output else restarts or run.groups.pending
    redirect_to_null(*((0,) if keeps_output else (0, 1)))
    run.loop.turn(SHORT_RUN_S)
    if run.has_unfinished:
        if not has_name:
            set_process_name()
        run.oom_kills = read_oom_kills(ROOT)


def run_loop(run: Run) -> None:
    """Turn the loop until no rank runs or waits, and no orphan is left.

    After any event it is asked what can start, before the loop sleeps: nothing that happens can be missed.
    """
    sample: Callable[[], None] | None = None
    while True:
        if run.orphans.check_requested:
            run.stop_orphans()  # a rank may wait until nothing is left of its last attempt
        if run.start_next():
            run.leave_rank_cpus()
            run.loop.turn(0)
            continue
        if run.sampler and not (sample or run.groups.pending or run.shutdown.begun):
            from ompbind.execution.verification import sample_affinities  # noqa: PLC0415 - door: --verify

            run.sampler.begin(time.monotonic())
            sample = partial(sample_affinities, run)
        if not (run.has_unfinished or run.orphans.any_left):
            return
        if run.sampler and sample:
            run.loop.call_at(run.sampler.due_at, sample)
        run.loop.turn()


def _read_signals(run: Run, pipe: int, handle: Callable[[], None]) -> None:
    """Read signals, for `handle` after the exits of this turn; at end of file all ranks are killed."""
    numbers = signals.read_signals(pipe)
    if numbers is not None:
        run.signals += numbers
        run.received_at |= {(number, pipe == run.foreground.pipe): time.monotonic() for number in numbers}
        run.loop.call_at(NOW, handle)
        return
    run.loop.ignore(pipe)  # a pipe at end of file is always readable
    run.shutdown.foreground_exited = True
    run.orphans.check_requested = True
    run.cancel_starts()
    run.restarts.cancel()
    _kill_ranks(run)


def _kill_ranks(run: Run) -> None:
    for pid in run.live:
        run.terminal.take_back(pid)
        signal_rank(pid, signal.SIGKILL)


def _handle_signals(run: Run) -> None:
    """Stop the run at a termination signal; forward other signals; at SIGTSTP stop ompbind too."""
    numbers, run.signals = run.signals, []
    for number in numbers:
        if number in signals.TERMINATION_SIGNALS:
            idle = not (run.has_unfinished or run.orphans.any_left)
            run.shutdown.note_request(time.monotonic(), idle=idle)
            run.stop(number)
        elif number == signal.SIGTSTP and not run.terminal.can_be_stopped():
            continue  # no process could continue the job; the kernel does not stop it either without ompbind
        elif number in signals.FORWARDED_SIGNALS:
            _forward(run, number)
    if signal.SIGCHLD in numbers:
        run.reap_children()


def _forward(run: Run, number: int) -> None:
    """Forward a signal to all ranks; SIGTSTP pauses the run, and stops the foreground process too."""
    if number == signal.SIGWINCH:
        run.output.set_size()
    run.signal_ranks(number)
    if number == signal.SIGHUP:
        run.signal_ranks(signal.SIGCONT)  # as the kernel does: a stopped process ignores SIGHUP
    elif number == signal.SIGTSTP:
        run.set_paused(True)
        signal_parent(run.foreground.pid, signal.SIGSTOP)
    elif number == signal.SIGCONT and run.is_paused:
        run.set_paused(False)
        # It may have forwarded this signal before the signal that has stopped it came.
        signal_parent(run.foreground.pid, signal.SIGCONT)


def _verify(run: Run | None) -> VerificationResult | None:
    if run is None or run.sampler is None:
        return None
    from ompbind.execution.verification import finish_verification  # noqa: PLC0415 - door: --verify

    return finish_verification(run)


def _finish(run: Run) -> Outcome:
    """After all ranks have exited: write the rest of their output and the summary; returns the outcome."""
    _drain_output(run)
    verified = _verify(run)
    if verified and run.exits and run.can_report:
        run.output.write(run.reporter.verified(verified))
    oom_kills = 0
    if run.oom_kills is not None and any(rank_exit.failed for rank_exit in run.exits):
        oom_kills = max(0, (read_oom_kills(ROOT) or 0) - run.oom_kills)
    throttling = read_throttling(ROOT) if run.throttling else None
    outcome = Outcome(
        exits=tuple(
            each.replace(
                last_lines=run.output.read_last_lines(each.rank) if each.failed else (),
                earlier=run.restarts.earlier.get(each.rank, ()),
            )
            for each in run.exits
        ),
        timed_out=run.shutdown.timed_out,
        start_interrupted_by=run.shutdown.start_interrupted_by,
        oom_kills=oom_kills,
        throttling=throttling.since(run.throttling) if throttling and run.throttling else None,
        error=run.shutdown.error,
        write_errors=tuple(run.output.write_errors),
        verified=verified,
        held=run.count_held() if run.count_held else None,
        stop_requested=run.shutdown.requested_at is not None,
        until=frozenset(run.groups.ranks[run.options.until]) if run.shutdown.until_reached else None,
    )
    if run.can_report:
        run.output.write(run.reporter.summary(outcome))
        _drain_output(run)
    return outcome


def _drain_output(run: Run) -> None:
    shutdown = run.shutdown
    if shutdown.foreground_exited:
        return
    run.output.end_streams()
    run.output.report_write_errors()

    def check_reader() -> None:
        shutdown.check_reader(run.output.written, time.monotonic())

    while not (run.output.idle or shutdown.output_abandoned or shutdown.foreground_exited):
        check_reader()
        run.loop.call_at(shutdown.reader_give_up_at, check_reader)
        run.loop.turn()
