"""Signals to ranks and their process groups; and the subreaper, so that no daemon escapes.

When a process exits, the kernel gives its children a new parent: the nearest ancestor that is a *subreaper*.

The kernel gives the PID of a process that was reaped to another process. So each signal here goes to

- a child of this process, which keeps its PID until this process reaps it; or the process group that it leads
- the parent of this process, as long as it is the parent
- a process that /proc shows to be a descendant, if its PID still belongs to the same process
"""

import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping

from ompbind.cpuset import named
from ompbind.procfs.parsers import EXITED_STATES, Stat, find_descendants
from ompbind.procfs.reader import is_proc_of_pid_namespace, read_children, read_processes, read_stat

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

REAPED_AT_ONCE = 1000
"""Children that are reaped at most before anything else: daemons may exit faster than they can be reaped."""

_SWEEPS_OF_CHILDREN = 16
"""Sweeps over the children of this process for each sweep over all processes, which takes much longer."""

_EXIT_WAIT_S = 0.2
"""Seconds to wait for the exit of processes that cannot be found, which the kernel may have killed."""

_SWEEP_PAUSE_S = 0.001
"""Seconds between two sweeps if no process has exited since the last."""


def become_subreaper() -> bool:
    """Become a subreaper; returns whether the system supports that."""
    return _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def exit_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it exits; exit now if it has exited."""
    _call_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _call_prctl(option: int, value: int) -> bool:
    """Call prctl(2); returns whether the system supports that."""
    try:
        import ctypes  # noqa: PLC0415 - door: loads libffi, which some Pythons lack

        prctl = ctypes.CDLL(None).prctl  # None: this program itself
        return bool(prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def read_group(pid: int) -> int:
    """Return the process group of a process; 0 if the process does not exist."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def signal_process(pid: int, number: int) -> bool:
    """Signal a process; False if it does not exist, or may not be signalled."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False if it is empty, or no member may be signalled."""
    return signal_process(-group, number)


def signal_rank(pid: int, number: int) -> None:
    """Signal a rank and its process group, each process once: the rank may have moved to another group."""
    if read_group(pid) not in (pid, 0):  # 0: the rank has exited, but its group may have members
        signal_process(pid, number)
    signal_group(pid, number)


def signal_parent(pid: int, number: int, *, group: int = 0) -> bool:
    """Signal the parent of this process, `pid`, or its process group; False if the parent has exited."""
    return os.getppid() == pid and signal_process(-group if group else pid, number)


def signal_listed(pid: int, listed: Stat, number: int) -> bool:
    """Signal the process that /proc has listed as `listed`; False if it has exited since."""
    try:
        pidfd = os.pidfd_open(pid)
    except (OSError, AttributeError):  # it has exited, or this system or the limit on files permits no pidfd
        return _is_listed(pid, listed) and signal_process(pid, number)
    try:
        if not _is_listed(pid, listed):
            return False
        signal.pidfd_send_signal(pidfd, number)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _is_listed(pid: int, listed: Stat) -> bool:
    """Return whether a PID still belongs to the same process."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == listed.start_ticks


def has_exited(pid: int, listed: Stat) -> bool:
    """Return whether the process that /proc has listed as `listed` has exited, even unreaped."""
    stat = read_stat(pid)
    return stat is None or stat.start_ticks != listed.start_ticks or stat.state in EXITED_STATES


def has_children(group: int = 0) -> bool:
    """Return whether this process has any child, zombies included, or any in a process group.

    /proc may miss some for a moment.
    """
    try:
        os.waitid(os.P_PGID if group else os.P_ALL, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def read_descendants() -> dict[int, Stat]:
    """Read /proc/PID/stat of all descendants of this process that have not exited; {} without /proc."""
    processes = read_processes()
    me = os.getpid()
    return {pid: processes[pid] for pid in find_descendants(processes, (me,)) - {me} if pid in processes}


def order_by_start(pids: Iterable[int], listed: Mapping[int, Stat]) -> list[int]:
    """Return PIDs in the order in which the processes were started: a parent before its children.

    A shell that is killed before its child cannot print that the child was killed.
    """
    return sorted(pids, key=lambda pid: (listed[pid].start_ticks if pid in listed else 0, pid))


def kill_descendants(limit_s: float, spared: Collection[int] = ()) -> set[int] | None:
    """Kill and reap all descendants of this process, until none is left or `limit_s` seconds are over.

    Processes may fork faster than /proc can be read, so it is read again until no child is left. `spared` are
    children that are left alone, with their descendants. Returns the PIDs of processes that are left; None if
    there are some that cannot be found, because /proc does not show them.
    """
    can_find = is_proc_of_pid_namespace()
    until = time.monotonic() + (limit_s if can_find else _EXIT_WAIT_S)
    sweep = 0
    _reap_zombies()
    while has_children():
        # Ranks are children: they are killed first, before reading /proc takes a few milliseconds.
        left = _kill_once(spared, only_children=sweep % _SWEEPS_OF_CHILDREN != 1)
        if time.monotonic() >= until or (spared and not left):
            return left if can_find else None
        if not _reap_zombies():
            time.sleep(_SWEEP_PAUSE_S)
        sweep += 1
    return set()


def render_left(left: Collection[int] | None) -> str:
    """Render a result of `kill_descendants`: which processes are left; "" for none."""
    if left is None:
        return "processes of ranks may be left: /proc does not show them"
    return f"cannot kill {named('pid', left)}, left behind by a rank" if left else ""


def _kill_once(spared: Collection[int], *, only_children: bool) -> set[int]:
    """Kill all descendants that are listed now, or only the children; returns them."""
    children = read_children()
    descendants = {} if only_children and children is not None else read_descendants()
    kept = find_descendants(descendants, spared)
    left = (descendants.keys() | (children or set())) - kept
    for pid in order_by_start(left, descendants):
        if pid in descendants:
            signal_listed(pid, descendants[pid], signal.SIGKILL)
        else:  # a child, also one whose initial thread has exited before the others
            signal_process(pid, signal.SIGKILL)
    return left


def _reap_zombies() -> bool:
    """Reap up to REAPED_AT_ONCE children that have exited; returns whether there was any."""
    reaped = 0
    try:
        while reaped < REAPED_AT_ONCE and os.waitpid(-1, os.WNOHANG)[0]:
            reaped += 1
    except ChildProcessError:
        pass
    return reaped > 0
