"""The foreground process and the supervisor: two processes, so that no rank outlives one of them.

    shell
      └─ foreground process   started by the user; forwards signals, exits with the supervisor's status
           │ pipe             signal numbers as bytes; end of file: the foreground process is dead
           └─ supervisor      a process group of its own, comm `rank-supervisor`; starts and reaps ranks
                ├─ rank 0
                └─ rank 1

The foreground process is killed: the supervisor reads the end of the pipe and kills all ranks.
The supervisor is killed: the foreground process, a subreaper, becomes the parent of the ranks and kills them.
Children that the foreground process already had, as after `exec` in a script, are left alone.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from ompbind.commands.rank_variables import SUPERVISOR_NAME
from ompbind.errors import LaunchError
from ompbind.execution.job_control import Terminal, exit_by_interrupt
from ompbind.execution.orphans import become_subreaper, kill_descendants, render_left, signal_process
from ompbind.execution.signals import (
    TERMINATION_SIGNALS,
    TTY_SIGNALS,
    Foreground,
    block_for_sigwait,
    block_signals,
    find_unignored,
    signal_name,
)
from ompbind.execution.spawn import make_limit_error
from ompbind.procfs.reader import read_children, read_stat


def become_supervisor(
    release: Callable[[], None],
    grace_s: float,
    signal_mask: frozenset[int] | None = None,
    *,
    verify: bool = False,
) -> Foreground:
    """Fork. Only the child, the supervisor, returns, with all signals blocked; the caller never returns.

    The caller becomes the foreground process. If the supervisor is killed, it kills all ranks, for up to
    `grace_s` seconds if they fork faster than they are found, and calls `release`, which withdraws the claim
    of the run. With `verify` it writes the last line of --verify then. A caller that has blocked all signals
    already gives the `signal_mask` from before. Both processes hold the claim, so it lasts until both have
    exited. Raises LaunchError if the fork fails.
    """
    while (free := os.open(os.devnull, os.O_RDWR)) < 3:
        pass  # no pipe may get the number of a standard file that is closed
    os.close(free)
    before = block_signals()
    signal_mask = before if signal_mask is None else signal_mask
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # with SIG_IGN the kernel reaps children itself
    become_subreaper()  # before the fork: the supervisor may be killed right after it has started a rank
    inherited = read_children() or set()  # before the fork too: ranks of a killed supervisor become children
    try:
        read_end, write_end = os.pipe()
        foreground = Foreground(
            pid=os.getpid(),
            group=os.getpgrp(),
            pipe=read_end,
            signal_mask=signal_mask,
            default_tty_signals=find_unignored(TTY_SIGNALS),
        )
        for number in TTY_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        supervisor = os.fork()
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
        raise make_limit_error("cannot start the run", error) from error
    if supervisor:
        os.close(read_end)
        code = LaunchError.launch_code
        try:
            redirect_to_null(0, 1)
            os.set_blocking(write_end, False)
            status = _forward_signals(supervisor, write_end, block_for_sigwait(signal_mask), inherited)
            if os.WIFEXITED(status):
                code = os.WEXITSTATUS(status)
            else:
                code = _handle_killed_supervisor(supervisor, os.WTERMSIG(status), grace_s, inherited)
                if verify and code == LaunchError.launch_code:
                    os.write(2, b"ompbind: not seen: the supervisor was killed\n")
                release()
        except OSError as error:  # as of sigwait, where a filter refuses it; the supervisor kills all ranks
            os.write(2, f"ompbind: error: {make_limit_error('cannot wait for the run', error)}\n".encode())
        finally:
            os._exit(code)
    os.setpgid(0, 0)
    os.close(write_end)
    return foreground


def redirect_to_null(*numbers: int) -> None:
    """Redirect standard files to /dev/null, so that only ranks keep the files of the user open."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(null_fd, number)
    os.close(null_fd)


def _forward_signals(supervisor: int, pipe: int, signals: frozenset[int], inherited: set[int]) -> int:
    """Write `signals` to the pipe until the supervisor exits, and return its wait status.

    A termination signal that does not fit there is sent to the supervisor itself: it has not read the pipe,
    or has closed it, because it has no ranks left and writes the report, or was just killed. `inherited` are
    the children that this process had before; a child that exits is removed.
    """
    while True:
        number = signal.sigwait(signals)
        if number != signal.SIGCHLD:
            try:
                os.write(pipe, bytes((number,)))
            except (BlockingIOError, BrokenPipeError):
                if number in TERMINATION_SIGNALS:
                    signal_process(supervisor, number)
            continue
        pid, status = -1, 0
        while pid not in (0, supervisor):  # other children are orphans that a subreaper has to reap
            pid, status = os.waitpid(-1, os.WNOHANG)
            inherited.discard(pid)
        if pid:
            return status


def _handle_killed_supervisor(supervisor: int, number: int, grace_s: float, inherited: set[int]) -> int:
    """Kill all ranks of a supervisor that signal `number` has killed, and return the exit code.

    The supervisor of an interrupted run kills itself by SIGINT at the end. This is no failure.
    """
    if number == signal.SIGINT:
        exit_by_interrupt()
        return 128 + number
    terminal = Terminal(os.getpgrp())
    ranks = (read_children() or set()) - inherited
    left = kill_descendants(grace_s, inherited)
    for group in ranks:
        terminal.take_back(group)
    result = "all ranks were killed" if left == set() else render_left(left)
    text = f"the supervisor (pid {supervisor}) was killed by {signal_name(number)}; {result}"
    os.write(2, f"ompbind: error: {text}\n".encode())
    return LaunchError.launch_code


def set_process_name() -> None:
    """Set the supervisor's name in comm and in its command line, as `ps` shows them; ignores errors."""
    name, stat = SUPERVISOR_NAME.encode(), read_stat("self")
    with suppress(OSError, ValueError):
        with open("/proc/self/comm", "wb") as file:
            file.write(name)
        start, end = stat.arguments if stat else ()  # not a pair on kernels that hide the addresses
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            # If the last byte is not zero, the kernel shows the command line only up to the first zero byte.
            memory.write(name.ljust(end - start - 1, b"\0")[: end - start - 1] + b".")
