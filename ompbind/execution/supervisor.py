"""The supervisor's main loop: start all ranks, forward signals, stop ranks, leave no process behind.

    open the signal pipe; all signals are blocked
    for each rank:  start it, handle events without waiting
    after the last: unblock signals, which are written to the pipe from now on
    while a rank runs or waits for its start or restart, or an orphan is left:
        start the ranks of groups whose turn has come
        sleep until a file is readable (signal pipe, pidfd of a rank, output) or a deadline passes
        handle events:  reap ranks, forward output and signals
        check deadlines:  --timeout, the next signal of the escalation, the next sample of --verify
        signal orphans of ranks that have exited
        start failed ranks again, with --on-failure restart
    write the rest of the output and the summary

How SIGTERM reaches the ranks:

    process_pair  _forward_signals      the foreground process writes the number of the signal to its pipe
    supervisor    _handle_events        reads it there, or from the pipe with signals to the supervisor itself
                  _handle_signal        forwards other signals; a termination signal stops the run:
    run_state     RunState.stop         starts no more ranks; asks `shutdown.Escalation` for the signal
                  RunState.send         the same for the next signals, once `_check_deadlines` finds them due
    children      Children.signal       all running ranks
    processes     signal_rank           the rank and its process group

A second termination signal sends the next signal of the escalation without waiting.
"""

import os
import signal
import time

from ompbind.errors import LaunchError
from ompbind.execution.outcome import Outcome
from ompbind.execution.poller import READABLE
from ompbind.execution.process_pair import Foreground, redirect_to_null, set_process_name
from ompbind.execution.processes import kill_descendants, signal_parent, signal_rank
from ompbind.execution.reaper import reap_children, reap_exited
from ompbind.execution.rlimits import make_limit_error
from ompbind.execution.run_options import Reporter, RunOptions
from ompbind.execution.run_state import RunState
from ompbind.execution.signals import (
    FORWARDED_SIGNALS,
    TERMINATION_SIGNALS,
    block_signals,
    read_signals,
    start_signal_pipe,
)
from ompbind.execution.spawn import StartCommands
from ompbind.execution.start import leave_rank_cpus, restart_due_ranks, start_rank

SHORT_RUN_S = 0.005
"""Seconds after the start of the last rank. A run that finishes in this time does without some steps."""

LONGEST_SLEEP_S = 86400.0
"""Seconds that a call of `epoll` waits at most, as its argument is limited."""


def supervise(
    starts: StartCommands, options: RunOptions, foreground: Foreground, reporter: Reporter
) -> Outcome:
    """Start all commands, wait until all have exited, and return how they exited.

    The outcome has an `error` if a rank could not be started or bound; no rank is left running then.
    """
    try:
        run = RunState(starts, options, foreground, reporter)
        try:
            _start_all(run)
            while run.has_unfinished or run.orphans.any_left:
                if run.children.waiting and not run.is_paused:
                    _start_next_group(run)
                    continue  # its ranks may have exited already
                _handle_events(run, _find_sleep_s(run))
                restart_due_ranks(run)
            run.output.message(run.orphans.kill_rest())
            return _finish(run)
        except BaseException:
            _kill_ranks(run)  # after any error, they would have no supervisor
            kill_descendants(options.supervision.grace)
            raise
    except LaunchError as error:
        return Outcome(exits=(), error=error)
    except OSError as error:
        return Outcome(exits=(), error=make_limit_error("cannot supervise the run", error))
    finally:
        block_signals()  # what is written now must be whole, and the exit code is decided
        os.close(foreground.pipe)


def _start_all(run: RunState) -> None:
    """Start every rank, and handle events of running ranks in between.

    Signals from the foreground process, and its exit as end of file, are read from the beginning. Signals to
    this process itself stay blocked until all ranks have started. Then they are written to a second pipe.
    Handling SIGCHLD for each rank, and resetting some 60 handlers in each, would take time.

    A run that finishes within SHORT_RUN_S needs no name by which other processes find its supervisor. It does
    not count out-of-memory kills either: to run out of memory takes longer.
    """
    read_end, signal_pipe = os.pipe()
    os.set_blocking(signal_pipe, False)
    for pipe in (read_end, run.foreground.pipe):
        run.poller.register(pipe, READABLE)
    run.orphans.become_parent()  # before any rank can exit
    if run.options.output:
        run.output.open()
    run.limit.check_free_files()
    has_name = False
    run.children.wait_for_start(run.group_starts.take_due())
    while run.children.waiting:
        start_rank(run, run.children.take_next())
        _handle_events(run, 0)
        if run.children.waiting and not has_name:
            set_process_name()  # only now, so that the first rank does not wait for it
            has_name = True
        elif not run.children.waiting:
            _note_started(run)
    start_signal_pipe(signal_pipe, run.foreground.signal_mask)
    leave_rank_cpus(run)
    output = run.options.output
    # Output is tagged here, or later attempts inherit it.
    keeps_output = output.tag if output else run.options.has_restarts or bool(run.group_starts.pending)
    redirect_to_null(*((0,) if keeps_output else (0, 1)))
    if run.sampler and not run.group_starts.pending:
        run.sampler.begin(time.monotonic())
    _handle_events(run, SHORT_RUN_S)
    if run.has_unfinished:
        if not has_name:
            set_process_name()
        run.accounting.start_oom_count()


def _note_started(run: RunState) -> None:
    """Note that all ranks that could start have started: let the groups start that wait for no other."""
    if run.shutdown.begun or not run.group_starts.pending:
        return
    for pipe in run.group_starts.begin_checks(run.foreground.signal_mask):
        run.poller.register(pipe, READABLE)
    for rank_exit in run.children.exits:
        run.stop_if_unready(rank_exit.rank)
    run.children.wait_for_start(run.group_starts.take_due())


def _start_next_group(run: RunState) -> None:
    """Start the ranks of groups whose turn has come."""
    while run.children.waiting:
        start_rank(run, run.children.take_next())
        leave_rank_cpus(run)
        _handle_events(run, 0)
        if not run.children.waiting:
            _note_started(run)
    if run.sampler and not (run.group_starts.pending or run.shutdown.begun):
        run.sampler.begin(time.monotonic())


def _handle_ready(run: RunState, pipe: int) -> None:
    """Handle the result of the checks of a group: start the groups that wait for it, or stop the run."""
    run.poller.unregister(pipe)
    error = run.group_starts.finish_check(pipe)
    if error and not run.shutdown.begun:
        run.shutdown.note_error(error)
        run.stop(signal.SIGTERM)
    elif not run.shutdown.begun:
        run.children.wait_for_start(run.group_starts.take_due())


def _handle_events(run: RunState, timeout_s: float | None) -> None:
    """Wait for events for up to `timeout_s` seconds, None for ever, and handle them; then check deadlines."""
    signals: list[int] = []
    exits = 0
    for file, _ in run.poller.poll(timeout_s):
        pid = run.children.by_pidfd.get(file)
        if pid is not None:
            exits += reap_exited(run, pid)
        else:
            signals += _handle_readable(run, file)
    for number in signals:
        _handle_signal(run, number)
    if signal.SIGCHLD in signals:
        exits += reap_children(run)
    _check_deadlines(run)
    if exits:
        run.orphans.check_requested = True
    if run.children.waiting:
        return  # the next rank comes first
    if run.orphans.check_requested or run.orphans.any_left or run.shutdown.foreground_exited:
        run.stop_orphans()


def _handle_readable(run: RunState, file: int) -> list[int]:
    """Handle output of ranks, the result of a check, or a pipe with signals; returns the signals."""
    numbers: list[int] | None = []
    if run.output.multiplexer and file == run.output.multiplexer.fileno():
        _forward_output(run)
    elif run.group_starts.has_check(file):
        _handle_ready(run, file)
    elif (numbers := read_signals(file)) is None:
        _handle_foreground_exit(run, file)
    return numbers or []


def _find_sleep_s(run: RunState) -> float | None:
    """Return the seconds until the next deadline; None if there is no deadline."""
    now = time.monotonic()
    sample_at = run.sampler.due_at if run.sampler else None
    times = (*run.shutdown.deadlines, run.orphans.next_check_at(now), sample_at, run.restarts.next_at)
    until = min((at for at in times if at is not None), default=None)
    return None if until is None else min(max(0.0, until - now), LONGEST_SLEEP_S)


def _forward_output(run: RunState) -> None:
    """Forward output of ranks; send SIGPIPE to ranks whose pseudo-terminal no longer has a reader.

    Writing to a pseudo-terminal never raises SIGPIPE by itself.
    """
    unread_ranks = run.output.forward()
    for pid, rank in run.children.ranks.items() if unread_ranks else ():
        if rank in unread_ranks:
            signal_rank(pid, signal.SIGPIPE)


def _handle_foreground_exit(run: RunState, pipe: int) -> None:
    """Kill all ranks, as the foreground process is dead: its pipe is at end of file."""
    run.poller.unregister(pipe)  # a pipe at end of file is always readable
    run.shutdown.foreground_exited = True
    run.cancel_starts()
    run.restarts.cancel()
    _kill_ranks(run)


def _kill_ranks(run: RunState) -> None:
    for pid in run.children.live:
        run.terminal.take_back(pid)
        signal_rank(pid, signal.SIGKILL)


def _handle_signal(run: RunState, number: int) -> None:
    """Stop the run at a termination signal; forward other signals; at SIGTSTP stop ompbind too."""
    if number in TERMINATION_SIGNALS:
        idle = not (run.has_unfinished or run.orphans.any_left)
        run.shutdown.note_request(time.monotonic(), idle=idle)
        run.stop(number)
    elif number == signal.SIGTSTP and not run.terminal.can_be_stopped():
        return  # no process could continue the job; the kernel does not stop it either without ompbind
    elif number in FORWARDED_SIGNALS:
        if number in (signal.SIGTSTP, signal.SIGCONT):
            run.is_paused = number == signal.SIGTSTP
        if number == signal.SIGWINCH and run.output.multiplexer:
            run.output.multiplexer.set_size()
        run.children.signal(number)
        if number == signal.SIGHUP:
            run.children.signal(signal.SIGCONT)  # as the kernel does: a stopped process ignores SIGHUP
        if number == signal.SIGTSTP:
            signal_parent(run.foreground.pid, signal.SIGSTOP)


def _check_deadlines(run: RunState) -> None:
    """Stop the run after its timeout, send the next signal of the escalation, sample threads; each if due."""
    now = time.monotonic()
    if run.shutdown.note_timeout(now):
        run.output.message(f"timeout after {run.options.supervision.timeout:g} s")
        run.stop(signal.SIGTERM)
    run.send(run.shutdown.take_due_signal(now))
    if run.sampler and run.sampler.is_due(now):
        from ompbind.execution.verify.evaluate import sample_affinities  # noqa: PLC0415 - door: --verify

        sample_affinities(run)


def _finish(run: RunState) -> Outcome:
    """After all ranks have exited: write the rest of their output and the summary; returns the outcome."""
    _drain_output(run)
    if run.sampler:
        from ompbind.execution.verify.evaluate import finish_verification  # noqa: PLC0415 - door: --verify

        finish_verification(run)
    multiplexer = run.output.multiplexer
    outcome = Outcome(
        exits=tuple(
            rank_exit.replace(last_lines=multiplexer.read_last_lines(rank_exit.rank))
            if multiplexer and rank_exit.failed
            else rank_exit
            for rank_exit in run.restarts.add_earlier(run.children.exits)
        ),
        timed_out=run.shutdown.timed_out,
        start_interrupted_by=run.shutdown.start_interrupted_by,
        oom_kills=run.accounting.count_oom_kills() if run.children.has_failed_rank else 0,
        throttling=run.accounting.count_throttling(),
        error=run.shutdown.error or (run.sampler.error if run.sampler else None),
        write_errors=run.output.write_errors,
        verified=run.sampler.verified if run.sampler else None,
        stop_requested=run.shutdown.requested,
        until=run.group_starts.ranks_of(run.options.until) if run.shutdown.until_reached else None,
    )
    if run.can_report:
        run.output.write(run.reporter.summary(outcome))
        _drain_output(run)
    return outcome


def _drain_output(run: RunState) -> None:
    """Write the remaining output of ranks, unless it is abandoned."""
    multiplexer, shutdown = run.output.multiplexer, run.shutdown
    if multiplexer is None or shutdown.foreground_exited:
        return
    multiplexer.end_streams()
    run.output.report_write_errors()
    while not (multiplexer.idle or shutdown.output_abandoned or shutdown.foreground_exited):
        shutdown.check_reader(multiplexer.written, time.monotonic())
        _handle_events(run, _find_sleep_s(run))
