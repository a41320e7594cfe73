"""Running all ranks to their end: signals on, one short ladder to stop, nothing left behind.

Everything happens in one loop that sleeps until a signal comes, a rank ends or a deadline passes.
A second signal that asks to stop takes the next rung of the ladder at once.
"""

import os
import select
import signal
import time
from collections.abc import Sequence
from resource import RUSAGE_SELF, getrusage, struct_rusage

from ompbind.command import RankCommand
from ompbind.cpuset import named
from ompbind.errors import LaunchError
from ompbind.events import Exited, Outcome, Usage, describe
from ompbind.launch.front import let_go_of_files
from ompbind.launch.kin import end_children, signal_process, signal_rank
from ompbind.launch.limits import limit_as_before, raise_file_limit
from ompbind.launch.spawn import Wiring, spawn_rank
from ompbind.launch.terminal import ASKING
from ompbind.launch.wakeup import PASSED_ON, STOPPING, note_signals, read_noted
from ompbind.launch.watch import LiveRank, Run, Watch
from ompbind.launch.which import find_command

LONGEST_SLEEP_S = 86400.0
"""Seconds after which the loop looks at its deadlines again, since `epoll` cannot sleep for ever long."""

_AT_ONCE = 64
"""Events that one turn of the loop deals with."""


def run_ranks(commands: Sequence[RankCommand], watch: Watch) -> Outcome:
    """Start all commands, stay until all have ended, and return how they did.

    Raises LaunchError when a rank could not be started or bound; nothing is left running then.
    """
    run = Run([(command, find_command(command.argv[0], command.env)) for command in commands], watch)
    try:
        _listen(run)
        _start(run)
        while run.live or run.leavings.due:
            _turn(run, _patience_s(run))
    except BaseException as error:
        end_children()  # whatever it is, nobody watches over the ranks any more
        if isinstance(error, OSError):
            raise LaunchError(f"the run could not be watched: {error.strerror}") from error
        raise
    if run.failures:
        raise run.failures[0]
    return Outcome(exits=tuple(run.exits), timed_out=run.timed_out, cut_short=run.cut_short)


def _listen(run: Run) -> None:
    """Begin to hear of signals, and of the end of the front."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    run.own_signals = read_end
    for pipe in (read_end, run.watch.front.pipe):
        run.ears.register(pipe, select.EPOLLIN)
    note_signals(write_end, run.watch.front.mask, always=(signal.SIGCHLD,))


def _start(run: Run) -> None:
    """Start every rank, looking after those that run already; a start that fails begins the ladder."""
    run.leavings.adopt()  # before any rank can end
    limit = raise_file_limit(len(run.waiting))
    null = os.open(os.devnull, os.O_RDWR)
    while run.waiting:
        command, path = run.waiting.pop()
        wiring = Wiring(front=run.watch.front, files=(-1 if _reads_stdin(run) else null, -1, -1))
        began_at = time.monotonic()
        try:
            with limit_as_before(limit):
                pid = spawn_rank(command, path, wiring)
            _note_start(run, pid, LiveRank(command.rank, began_at))
        except LaunchError as error:
            run.failures.append(error)
            _ask_to_stop(run, signal.SIGTERM)
        _turn(run, 0)
    os.close(null)
    _settle(run)


def _reads_stdin(run: Run) -> bool:
    """Tell whether the rank to be started is the one that has standard input; several have no terminal."""
    return run.watch.stdin_first and not run.live and not run.exits and (run.alone or not os.isatty(0))


def _note_start(run: Run, pid: int, rank: LiveRank) -> None:
    run.live[pid] = rank
    try:
        rank.pidfd = os.pidfd_open(pid)
        run.ears.register(rank.pidfd, select.EPOLLIN)
        run.by_pidfd[rank.pidfd] = pid
    except (OSError, AttributeError):
        pass  # SIGCHLD tells of its end as well, only not who was first


def _settle(run: Run) -> None:
    """All ranks run: leave their CPUs and files to them."""
    run.floor_bytes = getrusage(RUSAGE_SELF).ru_maxrss * 1024
    if run.cpus is not None:
        try:
            os.sched_setaffinity(0, run.cpus)
        except OSError:
            pass  # none of them is left: any other CPU is as good
    let_go_of_files(0, 1)


def _turn(run: Run, patience_s: float | None) -> None:
    """Wait until something happens, and deal with it."""
    noted: list[int] = []
    heard = run.ears.poll(patience_s, _AT_ONCE)
    for file, _ in heard:
        if file in run.by_pidfd:
            _reap(run, run.by_pidfd[file])
        else:
            noted += _hear(run, file)
    for number in noted:
        _handle(run, number)
    if signal.SIGCHLD in noted:
        while _reap(run, -1):
            pass
    _look_at_clock(run)
    if heard or run.leavings.due:
        _look_at_leavings(run)


def _patience_s(run: Run) -> float | None:
    """Return how long the loop may sleep: to the next deadline, or until something happens."""
    now = time.monotonic()
    times = (run.ladder.due_at, run.timeout_at, run.leavings.next_look_at(now))
    deadlines = [at for at in times if at is not None]
    if not deadlines:
        return None
    return min(max(0.0, min(deadlines) - now), LONGEST_SLEEP_S)


def _hear(run: Run, pipe: int) -> list[int]:
    """Return the signals that have come; without a front everything is to end at once."""
    noted = read_noted(pipe)
    if noted is not None:
        return noted
    run.ears.unregister(pipe)
    run.front_is_gone = True
    run.waiting.clear()
    for pid in run.live:
        run.terminal.take_back(pid)
        signal_rank(pid, signal.SIGKILL)
    return []


def _handle(run: Run, number: int) -> None:
    if number in STOPPING:
        _ask_to_stop(run, signal.Signals(number))
    elif number == signal.SIGTSTP and not run.terminal.can_be_stopped():
        return  # nobody could continue what is stopped here, so nothing is, as with a direct start
    elif number in PASSED_ON:
        _signal_ranks(run, number)
        if number == signal.SIGHUP:
            _signal_ranks(run, signal.SIGCONT)  # the kernel does so too: what is stopped must hear it
        if number == signal.SIGTSTP:
            signal_process(run.watch.front.pid, signal.SIGSTOP)


def _signal_ranks(run: Run, number: int) -> None:
    for pid in run.live:
        signal_rank(pid, number)


def _ask_to_stop(run: Run, first: signal.Signals) -> None:
    if run.waiting:
        run.waiting.clear()
        run.cut_short = run.cut_short or first
    _send(run, run.ladder.ask(first, time.monotonic()))


def _send(run: Run, rung: signal.Signals | None) -> None:
    """Send a rung of the ladder to all that is left, then say so."""
    if rung is None or not (run.live or run.leavings.due):
        return
    who = named("rank", run.ranks) if run.live else "what ranks left behind"
    _signal_ranks(run, rung)
    _signal_ranks(run, signal.SIGCONT)
    run.hurry = rung is signal.SIGKILL
    if not run.failures:
        run.watch.say(f"stopping {who} with {rung.name}")


def _reap(run: Run, pid: int) -> bool:
    """Note how a child, any one with -1, has ended or was stopped; False when there is none."""
    try:
        found, status, rusage = os.wait4(pid, os.WNOHANG | os.WUNTRACED)
    except ChildProcessError:
        return False
    if found in run.live and os.WIFSTOPPED(status):
        _note_stop(run, found, signal.Signals(os.WSTOPSIG(status)))
    elif found in run.live:
        _note_end(run, _make_exited(run, found, status, rusage))
    return found != 0


def _note_stop(run: Run, pid: int, number: signal.Signals) -> None:
    """Give the only rank the terminal when it asks, or stop with it, as the shell expects."""
    if not run.alone:
        if number in ASKING:
            who = f"rank {run.live[pid].rank} (pid {pid})"
            run.watch.say(f"{who} is stopped: only a single rank can have the terminal ({number.name})")
    elif number in ASKING and run.terminal.is_ours():
        run.terminal.give(pid)
        signal_rank(pid, signal.SIGCONT)
    elif (number in ASKING and run.terminal.can_be_stopped()) or run.terminal.take_back(pid):
        if run.terminal.can_be_stopped():
            run.terminal.stop_job()  # what continues the front continues the rank
        else:
            signal_rank(pid, signal.SIGCONT)


def _make_exited(run: Run, pid: int, status: int, rusage: struct_rusage) -> Exited:
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    one = run.live[pid]
    usage = Usage(
        wall_s=time.monotonic() - one.began_at,
        user_s=rusage.ru_utime,
        system_s=rusage.ru_stime,
        max_rss_bytes=rusage.ru_maxrss * 1024 if rusage.ru_maxrss * 1024 > run.floor_bytes else None,
        voluntary_switches=rusage.ru_nvcsw,
        involuntary_switches=rusage.ru_nivcsw,
    )
    return Exited(
        rank=one.rank,
        pid=pid,
        code=code,
        signal=None if code is not None else os.WTERMSIG(status),
        usage=usage,
        stopped=run.ladder.begun,
    )


def _note_end(run: Run, exited: Exited) -> None:
    one = run.live.pop(exited.pid)
    if one.pidfd >= 0:
        del run.by_pidfd[one.pidfd]
        run.ears.unregister(one.pidfd)  # a child that is just being born may still have a copy of it
        os.close(one.pidfd)
    run.exits.append(exited)
    run.terminal.take_back(exited.pid)
    run.leavings.note_end(exited.pid, exited.rank)
    if exited.status == 0 or run.failures or run.front_is_gone:
        return
    if len(run.exits) > 1 or run.live or run.waiting:
        run.watch.say(describe(exited))
    if run.watch.stop_on_failure and (run.live or run.waiting) and not run.ladder.begun:
        _ask_to_stop(run, signal.SIGTERM)


def _look_at_clock(run: Run) -> None:
    now = time.monotonic()
    if run.timeout_at is not None and now >= run.timeout_at:
        run.timeout_at = None
        if run.live and not run.ladder.begun:
            run.timed_out = True
            run.watch.say(f"time is up after {run.watch.timeout_s:g} s")
            _ask_to_stop(run, signal.SIGTERM)
    if run.ladder.due_at is not None and now >= run.ladder.due_at:
        _send(run, run.ladder.step(now))


def _look_at_leavings(run: Run) -> None:
    ranks = {pid: one.rank for pid, one in run.live.items()}
    told = run.leavings.look(ranks, hurry=run.hurry or run.front_is_gone)
    if told and not run.front_is_gone:
        run.watch.say(told)
