"""Running all ranks to their end: signals on, one short ladder to stop, nothing left behind.

Everything happens in one loop that sleeps until a signal comes, a rank ends or a deadline passes.
A second signal that asks to stop takes the next rung of the ladder at once.
"""

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.outcome import Outcome
from ompbind.execution.poller import READABLE
from ompbind.execution.process_pair import Foreground, let_go_of_files
from ompbind.execution.processes import end_children, signal_process, signal_rank
from ompbind.execution.reaper import reap, reap_ended
from ompbind.execution.rlimits import WHAT_HELPS
from ompbind.execution.run_options import RunOptions
from ompbind.execution.run_state import Run
from ompbind.execution.signal_pipe import PASSED_ON, STOPPING, end_noting, note_signals, read_noted
from ompbind.execution.spawn import start_rank
from ompbind.planning.rank_command import RankCommand
from ompbind.programs.which import find_command

if TYPE_CHECKING:  # it is an interface only
    from ompbind.execution.reporter import Reporter

LONGEST_SLEEP_S = 86400.0
"""Seconds after which the loop looks at its deadlines again, since `epoll` cannot sleep for ever long."""

Starts = Mapping[int, tuple[RankCommand, str]]
"""The command of each rank, by number, and its path."""


def run_ranks(
    commands: Sequence[RankCommand], options: RunOptions, foreground: Foreground, reporter: "Reporter"
) -> Outcome:
    """Start all commands, stay until all have ended, and return how they did.

    The outcome has an error when a rank could not be started or bound; nothing is left running then.
    """
    try:
        starts = {one.rank: (one, find_command(one.argv[0], one.env)) for one in _in_turns(commands)}
        return _see_through(Run(tuple(starts), options, foreground, reporter), starts)
    except LaunchError as error:
        return Outcome(exits=(), error=error)
    except OSError as error:
        why, hint = f"the run could not be watched: {error.strerror}", WHAT_HELPS.get(error.errno or 0, "")
        return Outcome(exits=(), error=LaunchError(why, hint=hint))
    finally:
        end_noting(foreground.mask)
        os.close(foreground.pipe)


def _in_turns(commands: Sequence[RankCommand]) -> list[RankCommand]:
    """Order ranks such that those on the same CPUs do not start one after the other, but while others run."""
    turns = defaultdict[CpuSet | None, Iterator[int]](count)
    return sorted(commands, key=lambda one: next(turns[one.cpus]))


def _see_through(run: Run, starts: Starts) -> Outcome:
    try:
        _listen(run)
        _start(run, starts)
        while run.children.live or run.orphans.due:
            _turn(run, _patience_s(run))
        return _close(run)
    except BaseException:
        end_children()  # whatever it is, nobody watches over the ranks any more
        raise


def _listen(run: Run) -> None:
    """Begin to hear of signals, and of the end of the foreground process."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for pipe in (read_end, run.foreground.pipe):
        run.poller.register(pipe, READABLE)
    note_signals(write_end, run.foreground.mask)


def _start(run: Run, starts: Starts) -> None:
    """Start every rank, looking after those that run already; a start that fails begins the ladder."""
    run.orphans.adopt()  # before any rank can end
    if run.options.output:
        run.output.open()
    run.limit.check_room()
    while run.children.waiting:
        command, path = starts[run.children.take_next()]
        try:
            _start_rank(run, command, path)
        except LaunchError as error:
            run.shutdown.fail(error)
            run.stop(signal.SIGTERM)
        _turn(run, 0)
    _let_ranks_be(run)


def _start_rank(run: Run, command: RankCommand, path: str) -> None:
    multiplexer = run.output.multiplexer
    out, err = multiplexer.open_streams(command.rank) if multiplexer else (-1, -1)
    files = (-1 if _reads_stdin(run) else run.null, out, err)
    terminal = run.terminal if _is_interactive(run) else None
    began_at = time.monotonic()
    try:
        with run.limit.as_before():
            pid = start_rank(command, path, run.foreground, files=files, terminal=terminal)
    finally:
        if multiplexer:
            multiplexer.close_streams(out, err)
    run.accounting.note_start()
    run.children.add(pid, command.rank, began_at)


def _reads_stdin(run: Run) -> bool:
    """Tell whether the rank to be started is the one that has standard input; several have no terminal."""
    is_first = not (run.children.live or run.children.exits)
    return run.options.stdin_first and is_first and (run.children.is_single or not os.isatty(0))


def _is_interactive(run: Run) -> bool:
    """Tell whether the only rank reads the terminal, and writes to no pipe: nobody else of the job wants it.

    One that is not to be stopped in the background could not ask for it later: what is in `$(...)` of an
    interactive shell.
    """
    if not (run.children.is_single and run.options.stdin_first and run.terminal.is_ours()):
        return False
    inherits = run.options.output is None and not run.output.goes_to_pipe
    return not run.foreground.may_ask or (os.isatty(0) and inherits)


def _let_ranks_be(run: Run) -> None:
    """All ranks run: leave their CPUs and files to them."""
    run.accounting.begin()
    if run.cpus is not None:
        try:
            os.sched_setaffinity(0, run.cpus)
        except OSError:
            pass  # none of them is left: any other CPU is as good
    let_go_of_files(*((0,) if run.options.is_tagged else (0, 1)))
    if run.sampler:
        run.sampler.begin(time.monotonic())


def _turn(run: Run, patience_s: float | None) -> None:
    noted: list[int] = []
    ended = 0
    for file, _ in run.poller.poll(patience_s, 64):
        pid = run.children.find(file)
        if pid is not None:
            ended += reap_ended(run, pid)
        elif run.output.multiplexer and file == run.output.multiplexer.fileno():
            _pass_output_on(run)
        else:
            noted += _hear(run, file)
    for number in noted:
        _handle_signal(run, number)
    if signal.SIGCHLD in noted:
        while reap(run, -1):
            ended += 1
    _look_at_clock(run)
    if ended or run.orphans.due:
        gone = run.shutdown.foreground_is_gone
        told = run.orphans.look(run.children.ranks, hurry=run.shutdown.hurries or gone)
        if told and not gone:
            run.output.message(told)


def _patience_s(run: Run) -> float | None:
    """Return how long the loop may sleep: to the next deadline, or until something happens."""
    now = time.monotonic()
    threads = run.sampler.due_at if run.sampler else None
    times = (*run.shutdown.deadlines, run.orphans.next_look_at(now), threads)
    until = min((at for at in times if at is not None), default=None)
    return None if until is None else min(max(0.0, until - now), LONGEST_SLEEP_S)


def _pass_output_on(run: Run) -> None:
    """Pass output on; a rank that writes to a pseudo-terminal has to be told that nobody reads it."""
    unread = run.output.work()
    for pid, rank in run.children.ranks.items() if unread else ():
        if rank in unread:
            signal_rank(pid, signal.SIGPIPE)


def _hear(run: Run, pipe: int) -> list[int]:
    """Return the signals that have come; without a foreground process everything is to end at once."""
    noted = read_noted(pipe)
    if noted is not None:
        return noted
    run.poller.unregister(pipe)  # what has ended is heard all the time
    run.shutdown.note_foreground_end()
    run.children.leave_out()
    for pid in run.children.live:
        run.terminal.take_back(pid)
        signal_rank(pid, signal.SIGKILL)
    return []


def _handle_signal(run: Run, number: int) -> None:
    if number in STOPPING:
        idle = not (run.children.are_left or run.orphans.due)
        run.shutdown.note_request(time.monotonic(), idle=idle)
        run.stop(signal.Signals(number))
    elif number == signal.SIGTSTP and not run.terminal.can_be_stopped():
        return  # nobody could continue what is stopped here, so nothing is, as with a direct start
    elif number in PASSED_ON:
        if number == signal.SIGWINCH and run.output.multiplexer:
            run.output.multiplexer.set_size()
        run.children.signal(number)
        if number == signal.SIGHUP:
            run.children.signal(signal.SIGCONT)  # the kernel does so too: what is stopped must hear it
        if number == signal.SIGTSTP:
            signal_process(run.foreground.pid, signal.SIGSTOP)


def _look_at_clock(run: Run) -> None:
    now = time.monotonic()
    if run.shutdown.begin_timeout(now):
        run.output.message(f"time is up after {run.options.timeout_s:g} s")
        run.stop(signal.SIGTERM)
    run.send_rung(run.shutdown.take_due_rung(now))
    if run.sampler and run.sampler.is_due(now):
        from ompbind.execution.verify.evaluate import look_at_threads  # late: few runs are verified

        look_at_threads(run, run.sampler)


def _close(run: Run) -> Outcome:
    """All ranks have ended: write what is left to be written, and what there is to say of the whole run."""
    _drain(run)
    if run.sampler:
        from ompbind.execution.verify.evaluate import conclude  # late: few runs are verified

        conclude(run, run.sampler)
    multiplexer = run.output.multiplexer
    outcome = Outcome(
        exits=tuple(
            one.replace(last_words=multiplexer.last_words(one.rank)) if multiplexer and one.failed else one
            for one in run.children.exits
        ),
        timed_out=run.shutdown.timed_out,
        cut_short=run.shutdown.cut_short,
        oom_kills=run.accounting.count_oom_kills() if run.children.have_failed else 0,
        error=run.shutdown.error or (run.sampler.error if run.sampler else None),
        troubles=run.output.troubles,
        verified=run.sampler.verified if run.sampler else None,
    )
    if run.is_heard:
        run.output.write(run.reporter.summary(outcome))
        _drain(run)
    return outcome


def _drain(run: Run) -> None:
    """Write what ranks have written before they ended, unless nobody is there to wait for it."""
    multiplexer, shutdown = run.output.multiplexer, run.shutdown
    if multiplexer is None or shutdown.foreground_is_gone:
        return
    multiplexer.finish()
    run.output.report_troubles()
    while not (multiplexer.idle or shutdown.given_up or shutdown.foreground_is_gone):
        shutdown.watch_reader(multiplexer.written, time.monotonic())
        _turn(run, _patience_s(run))
