"""Reap ranks: what follows when the kernel reports that a rank exited or was stopped."""

import os
import signal
import time

from ompbind.execution.outcome import RankExit, make_usage, render_exit
from ompbind.execution.processes import REAPED_AT_ONCE, signal_parent, signal_rank
from ompbind.execution.restarts import find_refusal
from ompbind.execution.run_state import RunState
from ompbind.execution.signals import TERMINATION_SIGNALS, TTY_SIGNALS, signal_name
from ompbind.procfs.reader import read_caught_signals


def reap(run: RunState, pid: int) -> bool:
    """Reap a child, -1 for any, and handle its exit or stop; returns False if no child has changed state.

    A child that is no rank is an orphan: only its zombie is removed.
    """
    try:
        found, status, used = os.wait4(pid, os.WNOHANG | os.WUNTRACED)
    except ChildProcessError:
        return False
    child = run.children.live.get(found)
    if child and os.WIFSTOPPED(status):
        _handle_stop(run, found, os.WSTOPSIG(status))
    elif child:
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        wall_s = time.monotonic() - child.started_at
        rank_exit = RankExit(
            rank=child.rank,
            pid=found,
            code=code,
            signal=None if code is not None else os.WTERMSIG(status),
            usage=make_usage(used, wall_s, run.accounting.inherited_rss_bytes),
            stopped=run.shutdown.begun,
            attempt=child.attempt,
            started=time.time() - wall_s,
            label=run.starts[child.rank][0].label,
        )
        _handle_exit(run, rank_exit)
    return found != 0


def reap_children(run: RunState) -> int:
    """Reap children after SIGCHLD, and return how many; if there may be more, SIGCHLD is sent again."""
    for reaped in range(REAPED_AT_ONCE):
        if not reap(run, -1):
            return reaped
    signal.raise_signal(signal.SIGCHLD)
    return REAPED_AT_ONCE


def reap_exited(run: RunState, pid: int) -> bool:
    """Reap a rank whose pidfd is readable; False if a debugger that traces it has yet to reap it."""
    if reap(run, pid):
        return True
    run.children.close_pidfd(pid)  # it stays readable; SIGCHLD comes when the debugger has reaped the rank
    return False


def _handle_stop(run: RunState, pid: int, number: int) -> None:
    """Handle that signal `number` has stopped a rank: give it the terminal, or stop the whole job.

    - several ranks: none can have the terminal; report a rank that requests it
    - the rank requests the terminal, and the job has it: give it the terminal and continue the rank
    - the rank requests it while the job is in the background, or Ctrl-Z has stopped it in the foreground:
      stop the job too, so that the shell notices; if no shell can continue the job, continue the rank
    - the rank requests it and no shell can continue it: SIGHUP, as the kernel does with orphaned groups
    """
    caught = read_caught_signals(pid) if number in _STOP_SIGNALS else set()
    requests = number in TTY_SIGNALS or bool(caught & set(TTY_SIGNALS))
    if not run.children.is_single:
        if number in TTY_SIGNALS:
            rank = f"{run.starts[run.children.live[pid].rank][0].name} (pid {pid})"
            text = "only a single rank can use the terminal (-n 1 starts a single rank)"
            run.output.message(f"{rank} is stopped by {signal_name(number)}: {text}")
    elif requests and run.terminal.is_ours():
        run.terminal.give(pid)
        signal_rank(pid, signal.SIGCONT)
    elif (requests and run.terminal.can_be_stopped()) or run.terminal.take_back(pid):
        if run.terminal.can_be_stopped():
            # The SIGCONT that continues the job is forwarded. Each process gets one signal: a second one
            # could stop a job again that the shell has just continued.
            if requests:  # programs that must go on, such as `timeout`, ignore SIGTTIN, and so does ompbind
                signal_parent(run.foreground.pid, signal.SIGTTIN, group=run.terminal.job)
                signal_parent(run.foreground.pid, signal.SIGSTOP)
            else:
                signal_parent(run.foreground.pid, signal.SIGSTOP, group=run.terminal.job)
        else:
            signal_rank(pid, signal.SIGCONT)
    elif requests:
        signal_rank(pid, signal.SIGHUP)
        signal_rank(pid, signal.SIGCONT)


_STOP_SIGNALS = (signal.SIGSTOP, signal.SIGTSTP)
"""Signals with which programs that catch `TTY_SIGNALS` stop themselves after restoring the screen."""


_EMPTY_INPUT = (
    "a rank has read standard input, which is empty: several ranks cannot share the terminal"
    " (-n 1 starts a single rank; '< FILE' gives a file to rank 0)"
)


def _handle_exit(run: RunState, rank_exit: RankExit) -> None:
    """Handle the exit of a rank: report a failure, restart it, stop the others, or continue without it."""
    _handle_status(run, rank_exit)
    run.stop_if_unready(rank_exit.rank)
    group = run.starts[rank_exit.rank][0].group
    if run.options.until == group and not (run.shutdown.begun or run.is_group_running(group)):
        run.shutdown.until_reached = True
        if run.has_unfinished:
            run.output.message(f"all ranks of group {group} have exited (--until)")
            run.stop(signal.SIGTERM)


def _handle_status(run: RunState, rank_exit: RankExit) -> None:
    """Handle what the exit of a rank means for the run: take the terminal back, report a failure."""
    child = run.children.note_exit(rank_exit)
    if run.empty_input.take_read():
        run.output.message(_EMPTY_INPUT)
    was_interrupted = run.terminal.take_back(rank_exit.pid) and rank_exit.signal == signal.SIGINT
    if was_interrupted:
        # Ctrl-C is for the whole job, as a loop in a script
        signal_parent(run.foreground.pid, signal.SIGINT, group=run.foreground.group)
    run.orphans.note_exit(rank_exit.pid, (rank_exit.rank, rank_exit.attempt))
    if rank_exit.status == 0 or run.shutdown.error or run.shutdown.foreground_exited:
        return
    if rank_exit.signal == signal.SIGPIPE:
        run.output.note_broken_pipe()
    requested = was_interrupted or rank_exit.status - 128 in child.signals
    next_step = _schedule_restart(run, rank_exit, requested=requested)
    has_several_ranks = len(run.children.exits) > 1 or run.has_unfinished
    # "stopping rank … with SIGTERM" was reported before, so an exit by that signal is no news.
    is_expected = rank_exit.stopped and rank_exit.signal in (*TERMINATION_SIGNALS, signal.SIGKILL)
    if (has_several_ranks or next_step) and not (run.output.reader_closed or is_expected):
        run.output.message(render_exit(rank_exit) + next_step)
    if rank_exit.rank in run.restarts.waiting:
        if rank_exit.attempt == 1 and rank_exit.rank == run.input_rank and run.has_input:
            run.output.message(f"only the first attempt of rank {rank_exit.rank} gets standard input")
    elif run.group_of(rank_exit.rank).stop_on_failure and run.has_unfinished and not run.shutdown.begun:
        run.stop(signal.SIGTERM)


def _schedule_restart(run: RunState, rank_exit: RankExit, *, requested: bool) -> str:
    """Let a failed rank wait for its restart, if it may; returns the end of the message on its exit."""
    policy = run.group_of(rank_exit.rank).restart
    if policy is None or rank_exit.stopped or run.output.reader_closed:
        return ""
    refusal = find_refusal(policy, rank_exit, requested=requested)
    if refusal:
        return f"; {refusal}"
    wait_s = run.restarts.schedule(policy, rank_exit, time.monotonic())
    return f"; attempt {rank_exit.attempt + 1} starts in {wait_s:g} s"
