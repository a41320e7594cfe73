"""The front and the keeper: two processes that look after each other, so that no rank outlives either.

The *front* is the process that was started: users, shells and batch systems know its number. It passes
every signal on and ends as the run ends. The *keeper* is its child, in a process group of its own, and the
parent of all ranks: it starts them and sees them through. When the front is killed without a chance to do
anything, a pipe ends and the keeper kills all ranks; when the keeper is, the front inherits the ranks and
does the same.
"""

import os
import signal
from collections.abc import Callable
from typing import NoReturn

from ompbind.errors import LaunchError
from ompbind.execution.job_control import Terminal, die_of_interrupt
from ompbind.execution.outcome import signal_name
from ompbind.execution.processes import adopt_orphans, end_children, signal_process
from ompbind.execution.rlimits import WHAT_HELPS
from ompbind.execution.signal_pipe import BACKGROUND, STOPPING, block_signals, find_unignored, hold_signals
from ompbind.planning.rank_variables import SUPERVISOR_NAME
from ompbind.procfs.reader import read_children, read_stat
from ompbind.record import Record


class Foreground(Record):
    """The process that the user started: its pid, its process group, and the pipe with its signals.

    The pipe ends with the foreground process. Once the supervisor has closed it, that process ends the
    supervisor when it is asked to stop. `mask` are the signals that were blocked when ompbind was started,
    `unchanged` those of `BACKGROUND` that were not ignored then.
    """

    pid: int
    group: int
    pipe: int
    mask: frozenset[int]
    unchanged: tuple[int, ...]

    @property
    def may_ask(self) -> bool:
        """Tell whether ranks are stopped, as is usual, when they want the terminal in the background."""
        return set(self.unchanged) == set(BACKGROUND) and self.mask.isdisjoint(BACKGROUND)


def become_supervisor(release: Callable[[], None]) -> Foreground:
    """Fork: returns in the keeper, with all signals blocked; the process that called it becomes the front.

    The claim of the run is held by both, and so for as long as one of them lives. The front calls `release`,
    which takes the claim back, when the keeper is killed and cannot do so. Raises LaunchError.
    """
    _open_standard_files()
    mask = block_signals()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it cannot wait for anybody
    adopt_orphans()  # before there is a keeper, which may be killed as soon as it has started a rank
    try:
        read_end, write_end = os.pipe()
        unchanged = find_unignored(BACKGROUND)
        foreground = Foreground(
            pid=os.getpid(), group=os.getpgrp(), pipe=read_end, mask=mask, unchanged=unchanged
        )
        supervisor = os.fork()
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        hint = WHAT_HELPS.get(error.errno or 0, "")
        raise LaunchError(f"the run could not be started: {error.strerror}", hint=hint) from error
    if supervisor:
        os.close(read_end)
        _stand(supervisor, write_end, foreground.mask, release)
    os.setpgid(0, 0)
    os.close(write_end)
    _take_name()
    return foreground


def _open_standard_files() -> None:
    """Open what is closed of the standard files, so that no pipe takes their place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def let_go_of_files(*numbers: int) -> None:
    """Leave standard files to the ranks: whoever is at the other end waits for them alone."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(null, number)
    os.close(null)


def _stand(supervisor: int, pipe: int, mask: frozenset[int], release: Callable[[], None]) -> NoReturn:
    """Be the front: stand there until the keeper ends, then end as it did."""
    code = LaunchError.launch_code
    try:
        let_go_of_files(0, 1)
        os.set_blocking(pipe, False)
        status = _wait_for(supervisor, pipe, hold_signals(mask))
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else _mourn(supervisor, status, release)
    finally:
        os._exit(code)


def _pass_on(number: int, supervisor: int, pipe: int) -> None:
    """Pass a signal on to the keeper, or end it when it listens no more: all it may still do is to write.

    A keeper that somebody has just killed listens no more either; what it leaves is dealt with afterwards.
    """
    try:
        os.write(pipe, bytes((number,)))
    except BlockingIOError:
        pass  # thousands have come that it had no time for
    except BrokenPipeError:
        if number in STOPPING:
            signal_process(supervisor, number)


def _wait_for(supervisor: int, pipe: int, heard: frozenset[int]) -> int:
    """Pass signals on until the keeper ends, and return its status."""
    while True:
        number = signal.sigwait(heard)
        if number != signal.SIGCHLD:
            _pass_on(number, supervisor, pipe)
            continue
        pid, status = -1, 0
        while pid not in (0, supervisor):  # what else ends here was nobody's child any more
            pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            return status


def _mourn(supervisor: int, status: int, release: Callable[[], None]) -> int:
    """Return the exit code after a keeper that a signal has ended: by its own will, or somebody's."""
    number = os.WTERMSIG(status)
    if number == signal.SIGINT:
        die_of_interrupt()
    if number in STOPPING:  # it catches them as long as it has ranks
        return 128 + number
    terminal = Terminal(os.getpgrp())
    ranks = read_children() or ()
    end_children()
    for group in ranks:
        terminal.take_back(group)
    release()
    by = signal_name(number)
    text = f"process {supervisor}, which held the ranks, was ended by {by}:\n  all of them were killed"
    os.write(2, f"ompbind: error: {text}\n".encode())
    return LaunchError.launch_code


def _take_name() -> None:
    """Take a name of its own, in both places where others look for one; a name is all that can be lost."""
    name = SUPERVISOR_NAME.encode()
    stat = read_stat("self")
    if stat is None:
        return
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(name)
        start, end = stat.arguments  # none on kernels that do not tell
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            # A last byte that is not zero tells the kernel that the first zero ends it.
            memory.write(name.ljust(end - start - 1, b"\0")[: end - start - 1] + b".")
    except (OSError, ValueError):
        pass
