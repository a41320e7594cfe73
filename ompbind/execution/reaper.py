"""The end of a rank, and its being stopped, as the kernel tells its parent."""

import os
import signal
import time
from resource import struct_rusage

from ompbind.execution.job_control import ASKING
from ompbind.execution.outcome import Exited, describe, make_usage
from ompbind.execution.processes import signal_group, signal_process, signal_rank
from ompbind.execution.run_state import Run
from ompbind.execution.signal_pipe import STOPPING
from ompbind.procfs.reader import read_caught_signals


def reap(run: Run, pid: int) -> bool:
    """Note how a child, any one with -1, has ended or was stopped; False when there is none."""
    try:
        found, status, used = os.wait4(pid, os.WNOHANG | os.WUNTRACED)
    except ChildProcessError:
        return False
    if found in run.children.live and os.WIFSTOPPED(status):
        _note_stop(run, found, signal.Signals(os.WSTOPSIG(status)))
    elif found in run.children.live:
        _note_end(run, _make_exited(run, found, status, used))
    return found != 0


def reap_ended(run: Run, pid: int) -> bool:
    """Note how a rank has ended whose pidfd says so; whoever traces it may still keep that to himself."""
    if reap(run, pid):
        return True
    run.children.close_pidfd(pid)  # it would say so all the time, and SIGCHLD comes when it is told
    return False


def _note_stop(run: Run, pid: int, number: signal.Signals) -> None:
    """Give the only rank the terminal when it asks, or stop with it, as the shell expects."""
    asks = number in ASKING or (number in _BY_ITSELF and read_caught_signals(pid) & set(ASKING))
    if not run.children.is_single:
        if number in ASKING:
            who = f"rank {run.children.live[pid].rank} (pid {pid})"
            run.output.message(f"{who} is stopped: only a single rank can have the terminal ({number.name})")
    elif asks and run.terminal.is_ours():
        run.terminal.give(pid)
        signal_rank(pid, signal.SIGCONT)
    elif (asks and run.terminal.can_be_stopped()) or run.terminal.take_back(pid):
        if run.terminal.can_be_stopped():
            # Those of the job that must not be stopped for the terminal's sake, as `timeout`, ignore SIGTTIN.
            signal_group(run.terminal.job, signal.SIGTTIN if asks else signal.SIGSTOP)
            signal_process(run.foreground.pid, signal.SIGSTOP)  # what continues it continues the rank
        else:
            signal_rank(pid, signal.SIGCONT)
    elif asks:
        signal_rank(pid, signal.SIGHUP)  # as the kernel does with what nobody is left to continue
        signal_rank(pid, signal.SIGCONT)


_BY_ITSELF = (signal.SIGSTOP, signal.SIGTSTP)
"""How programs stop that catch the signals of `ASKING`, to put the screen in order before."""


def _make_exited(run: Run, pid: int, status: int, used: struct_rusage) -> Exited:
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    child = run.children.live[pid]
    return Exited(
        rank=child.rank,
        pid=pid,
        code=code,
        signal=None if code is not None else os.WTERMSIG(status),
        usage=make_usage(used, time.monotonic() - child.began_at, run.accounting.floor_bytes),
        stopped=run.shutdown.begun,
    )


def _note_end(run: Run, exited: Exited) -> None:
    run.children.note_end(exited)
    had_terminal = run.terminal.take_back(exited.pid)
    if had_terminal and exited.signal == signal.SIGINT:
        signal_group(run.foreground.group, signal.SIGINT)  # Ctrl-C is for the whole job, loops around it too
    run.orphans.note_end(exited.pid, exited.rank)
    if exited.status == 0 or run.shutdown.error or run.shutdown.foreground_is_gone:
        return
    if exited.signal == signal.SIGPIPE:
        run.output.note_broken_pipe()
    several = len(run.children.exits) > 1 or run.children.are_left
    as_told = exited.stopped and exited.signal in (*STOPPING, signal.SIGKILL)  # which was said already
    if several and not (run.output.is_unread or as_told):
        run.output.message(describe(exited))
    if run.options.stop_on_failure and run.children.are_left and not run.shutdown.begun:
        run.stop(signal.SIGTERM)
