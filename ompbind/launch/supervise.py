"""Running all ranks to their end: signals on, one short ladder to stop, nothing left behind.

Everything happens in one loop that sleeps until a signal comes, a rank ends or a deadline passes.
A second signal that asks to stop takes the next rung of the ladder at once.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Sequence

from ompbind.command import RankCommand
from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.events import Exited, Outcome, describe
from ompbind.launch.groups import has_living, signal_group
from ompbind.launch.guard import dismiss, start_guard, withdraw
from ompbind.launch.ladder import Ladder
from ompbind.launch.spawn import Wiring, fork_rank, read_failures
from ompbind.launch.terminal import give_terminal, has_terminal, stop_like, take_terminal_back
from ompbind.launch.wakeup import Wakeup, noted_signals, unblock
from ompbind.launch.which import find_command
from ompbind.record import Record

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""Signals that ask a run to end: they are passed on, and begin the ladder."""

PASSED_ON = (
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGTSTP,
    signal.SIGWINCH,
)
"""Signals that are only passed on to every rank; it is theirs to decide what they mean."""

LINGER_STEP_S = 0.02
"""Seconds between two looks at process groups whose rank has ended but which are not empty yet."""


class Watch(Record):
    """How to watch over a run: seconds, None for no limit; `say` gets a line on each thing worth telling."""

    say: Callable[[str], None]
    grace_s: float = 10.0
    timeout_s: float | None = None
    stop_on_failure: bool = True
    stdin_first: bool = True


class _Run:
    """The state of one run.

    `live` are the ranks by pid, which is their process group; `lingering` are groups whose rank has
    ended, with the time at which what is left of them is killed. With `alone` the only rank has its
    share in a terminal. `status_pipe` is -1 once every rank runs or has failed to.
    """

    def __init__(self, watch: Watch, status_pipe: int, alone: bool) -> None:
        self.watch = watch
        self.guard = start_guard()
        self.ladder = Ladder(watch.grace_s)
        self.status_pipe = status_pipe
        self.alone = alone
        self.timeout_at = None if watch.timeout_s is None else time.monotonic() + watch.timeout_s
        self.timed_out = False
        self.live: dict[int, int] = {}
        self.lingering: dict[int, float] = {}
        self.exits: list[Exited] = []
        self.failures: list[LaunchError] = []


def run_ranks(commands: Sequence[RankCommand], watch: Watch) -> Outcome:
    """Start all commands, stay until all have ended, and return how they did.

    Raises LaunchError when a rank could not be started or bound; nothing is left running then.
    """
    paths = [find_command(command.argv[0], command.env) for command in commands]
    _open_standard_files()
    with noted_signals((*STOPPING, *PASSED_ON, signal.SIGCHLD)) as wakeup:
        run = _start(list(zip(commands, paths, strict=True)), watch, wakeup)
        try:
            unblock(wakeup)
            _loop(run, wakeup)
        finally:
            dismiss(run.guard, in_peace=not (run.live or run.lingering))
    if run.failures:
        raise run.failures[0]
    return Outcome(exits=tuple(run.exits), timed_out=run.timed_out)


def _open_standard_files() -> None:
    """Open what is closed of the standard files, so that no pipe takes their place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _start(commands: list[tuple[RankCommand, str]], watch: Watch, wakeup: Wakeup) -> _Run:
    """Start the guard and every rank; a fork that fails is noted, and begins the ladder."""
    status_read, status_write = os.pipe()
    alone = len(commands) == 1 and watch.stdin_first and os.isatty(0)
    run = _Run(watch, status_read, alone)
    for position, (command, path) in enumerate(commands):
        wiring = Wiring(
            guard=run.guard,
            status=status_write,
            wakeup=wakeup,
            reads_stdin=alone or (position == 0 and watch.stdin_first and not os.isatty(0)),
            takes_terminal=alone and has_terminal(),
        )
        try:
            run.live[fork_rank(command, path, wiring)] = command.rank
        except OSError as error:
            run.failures.append(_fork_error(command.rank, error))
            break
    os.close(status_write)
    if run.failures:
        _stop(run, signal.SIGTERM)
    return run


def _fork_error(rank: int, error: OSError) -> LaunchError:
    return LaunchError(
        f"rank {rank} could not be started: {error.strerror}",
        hint="the system allows no more processes: look at 'ulimit -u' and the pids limit of the cgroup",
    )


def _loop(run: _Run, wakeup: Wakeup) -> None:
    poller = select.poll()
    poller.register(wakeup.pipe, select.POLLIN)
    poller.register(run.status_pipe, select.POLLIN)
    while run.live or run.lingering or run.status_pipe >= 0:
        ready = {number for number, _ in poller.poll(_patience_ms(run))}
        if run.status_pipe in ready:
            _read_status(run, poller)
        if wakeup.pipe in ready:
            for number in wakeup.read():
                _handle(run, number)
        _reap(run)
        _look_at_clock(run)


def _patience_ms(run: _Run) -> float | None:
    """Return how long the loop may sleep: to the next deadline, or until something happens."""
    deadlines = [at for at in (run.ladder.due_at, run.timeout_at) if at is not None]
    if run.lingering:
        deadlines.append(time.monotonic() + LINGER_STEP_S)
    if not deadlines:
        return None
    return max(0.0, min(deadlines) - time.monotonic()) * 1000 + 1


def _read_status(run: _Run, poller: select.poll) -> None:
    """Read what starting ranks tell; the end of the pipe says that all of them run or have failed."""
    data = os.read(run.status_pipe, 1 << 16)
    if not data:
        poller.unregister(run.status_pipe)
        os.close(run.status_pipe)
        run.status_pipe = -1
        return
    run.failures.extend(read_failures(data))
    if not run.ladder.begun:
        _stop(run, signal.SIGTERM)


def _handle(run: _Run, number: signal.Signals) -> None:
    if number in STOPPING:
        _stop(run, number)
    elif number in PASSED_ON:
        if number is signal.SIGCONT and run.alone and has_terminal():
            give_terminal(next(iter(run.live), os.getpgrp()))
        _signal_groups(run, number)
        if number is signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)


def _signal_groups(run: _Run, number: signal.Signals) -> None:
    for group in (*run.live, *run.lingering):
        signal_group(group, number)


def _stop(run: _Run, first: signal.Signals) -> None:
    """Take the first or the next rung of the ladder."""
    number = run.ladder.step(first, time.monotonic())
    if number is None or not (run.live or run.lingering):
        return
    ranks = CpuSet(run.live.values())
    who = "what ranks left behind" if not ranks else f"rank {ranks}" if len(ranks) == 1 else f"ranks {ranks}"
    run.watch.say(f"stopping {who} with {number.name}")
    _signal_groups(run, number)
    _signal_groups(run, signal.SIGCONT)


def _reap(run: _Run) -> None:
    """Note every rank that has ended or, when it has the terminal, was stopped."""
    flags = os.WNOHANG | (os.WUNTRACED if run.alone else 0)
    while True:
        try:
            pid, status = os.waitpid(-1, flags)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            stop_like(pid)
        elif pid in run.live:
            _note_end(run, pid, status)


def _note_end(run: _Run, pid: int, status: int) -> None:
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    killer = None if code is not None else os.WTERMSIG(status)
    exited = Exited(rank=run.live.pop(pid), pid=pid, code=code, signal=killer)
    run.exits.append(exited)
    if run.alone:
        take_terminal_back(pid)
    if has_living(pid):
        signal_group(pid, signal.SIGTERM)
        run.lingering[pid] = time.monotonic() + run.watch.grace_s
    else:
        withdraw(run.guard, pid)
    if exited.status == 0 or run.failures:
        return
    if len(run.exits) > 1 or run.live:
        run.watch.say(describe(exited))
    if run.watch.stop_on_failure and run.live and not run.ladder.begun:
        _stop(run, signal.SIGTERM)


def _look_at_clock(run: _Run) -> None:
    now = time.monotonic()
    for group, kill_at in list(run.lingering.items()):
        if now >= kill_at:
            signal_group(group, signal.SIGKILL)
        if now >= kill_at or not has_living(group):
            del run.lingering[group]
            withdraw(run.guard, group)
    if run.timeout_at is not None and now >= run.timeout_at and (run.live or run.lingering):
        run.timeout_at, run.timed_out = None, True
        run.watch.say(f"time is up after {run.watch.timeout_s:g} s")
        if not run.ladder.begun:
            _stop(run, signal.SIGTERM)
    if run.ladder.due_at is not None and now >= run.ladder.due_at:
        _stop(run, signal.SIGTERM)
