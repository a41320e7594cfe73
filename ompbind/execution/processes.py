"""Signals to ranks and their process groups; and the subreaper, so that no daemon escapes.

When a process exits, the kernel gives its children a new parent: the nearest ancestor that is a *subreaper*.
"""

import os
import signal

from ompbind.procfs.reader import read_children, read_processes

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Become a subreaper; returns whether the system supports that."""
    try:
        # A part of ctypes: importing all of it takes a tenth of the time that a rank needs to start.
        from _ctypes import call_function, dlopen, dlsym

        prctl = dlsym(dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: this program itself
        return bool(call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0)
    except (ImportError, OSError):
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


def has_children() -> bool:
    """Return whether this process has any child, zombies included; /proc may miss some for a moment."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_children() -> None:
    """Kill every child of this process, orphans that it is given meanwhile included, until none is left."""
    while has_children():
        children = read_children()
        if children is None:
            me = os.getpid()
            children = {pid for pid, process in read_processes().items() if process.parent == me}
            if not children:
                return  # without /proc, children cannot be found
        for pid in children:
            signal_process(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0 if children else os.WNOHANG)
        except ChildProcessError:
            return
