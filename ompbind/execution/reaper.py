"""The end of a rank, and its being stopped, as the kernel tells its parent."""

import os
import signal
import time
from resource import struct_rusage

from ompbind.execution.job_control import ASKING
from ompbind.execution.outcome import Exited, describe, make_usage
from ompbind.execution.poller import has_reader
from ompbind.execution.processes import signal_group, signal_process, signal_rank
from ompbind.execution.run_state import LiveRank, Run
from ompbind.execution.signal_pipe import STOPPING
from ompbind.execution.signals import ask_to_stop
from ompbind.procfs.reader import read_caught_signals


def reap(run: Run, pid: int) -> bool:
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


def reap_ended(run: Run, pidfd: int) -> bool:
    """Note how a rank has ended whose pidfd says so; whoever traces it may still keep that to himself."""
    pid = run.by_pidfd[pidfd]
    if reap(run, pid):
        return True
    _close_pidfd(run, run.live[pid])  # it would say so all the time, and SIGCHLD comes when it is told
    return False


def _note_stop(run: Run, pid: int, number: signal.Signals) -> None:
    """Give the only rank the terminal when it asks, or stop with it, as the shell expects."""
    asks = number in ASKING or (number in _BY_ITSELF and read_caught_signals(pid) & set(ASKING))
    if not run.alone:
        if number in ASKING:
            who = f"rank {run.live[pid].rank} (pid {pid})"
            run.say(f"{who} is stopped: only a single rank can have the terminal ({number.name})")
    elif asks and run.terminal.is_ours():
        run.terminal.give(pid)
        signal_rank(pid, signal.SIGCONT)
    elif (asks and run.terminal.can_be_stopped()) or run.terminal.take_back(pid):
        if run.terminal.can_be_stopped():
            run.terminal.stop_job(signal.SIGTTIN if asks else signal.SIGSTOP)
            signal_process(run.watch.front.pid, signal.SIGSTOP)  # what continues it continues the rank
        else:
            signal_rank(pid, signal.SIGCONT)
    elif asks:
        signal_rank(pid, signal.SIGHUP)  # as the kernel does with what nobody is left to continue
        signal_rank(pid, signal.SIGCONT)


_BY_ITSELF = (signal.SIGSTOP, signal.SIGTSTP)
"""How programs stop that catch the signals of `ASKING`, to put the screen in order before."""


def _make_exited(run: Run, pid: int, status: int, rusage: struct_rusage) -> Exited:
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    one = run.live[pid]
    return Exited(
        rank=one.rank,
        pid=pid,
        code=code,
        signal=None if code is not None else os.WTERMSIG(status),
        usage=make_usage(rusage, time.monotonic() - one.began_at, run.floor_bytes),
        stopped=run.ladder.begun,
    )


def _note_end(run: Run, exited: Exited) -> None:
    one = run.live.pop(exited.pid)
    if one.pidfd >= 0:
        _close_pidfd(run, one)
    run.exits.append(exited)
    had_terminal = run.terminal.take_back(exited.pid)
    if had_terminal and exited.signal == signal.SIGINT:
        signal_group(run.watch.front.group, signal.SIGINT)  # Ctrl-C is for the whole job, loops around it too
    run.leavings.note_end(exited.pid, exited.rank)
    if exited.status == 0 or run.failures or run.front_is_gone:
        return
    run.unread = run.unread or _died_unread(run, exited)
    several = len(run.exits) > 1 or run.live or run.waiting
    if several and not (run.unread or _died_as_told(exited)):
        run.say(describe(exited))
    if run.watch.stop_on_failure and (run.live or run.waiting) and not run.ladder.begun:
        ask_to_stop(run, signal.SIGTERM)


def _died_as_told(exited: Exited) -> bool:
    """Tell whether what was sent to stop a rank has ended it, which was said already."""
    return exited.stopped and exited.signal in (*STOPPING, signal.SIGKILL)


def _close_pidfd(run: Run, one: LiveRank) -> None:
    del run.by_pidfd[one.pidfd]
    run.ears.unregister(one.pidfd)  # a child that is just being born may still have a copy of it
    os.close(one.pidfd)
    one.pidfd = -1


def _died_unread(run: Run, exited: Exited) -> bool:
    """Tell whether a rank ended since nobody reads any more: who closes a pipe wants to hear no more."""
    if exited.signal != signal.SIGPIPE:
        return False
    return run.outlet.broken if run.outlet else run.stdout >= 0 and not has_reader(run.stdout)
