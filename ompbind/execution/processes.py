"""Acting on processes: signals to ranks and their groups, and the adoption of orphans.

A *subreaper* becomes the parent of every descendant that loses its own: no daemon gets out of its sight.
"""

import os
import signal

from ompbind.procfs.reader import read_children, read_processes

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> bool:
    """Become a subreaper; tells whether this system can do that."""
    try:
        # What ctypes is made of: to import all of it takes a tenth of the time that a rank needs to start.
        from _ctypes import call_function, dlopen, dlsym

        prctl = dlsym(dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: this program itself
        return bool(call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0)
    except (ImportError, OSError):
        return False


def read_group(pid: int) -> int:
    """Return the process group of a process; 0 when it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def signal_process(pid: int, number: int) -> bool:
    """Signal a process; False when it is gone, or not ours to signal."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False when nobody is left in it, or nobody that may be signalled."""
    return signal_process(-group, number)


def signal_rank(pid: int, number: int) -> None:
    """Signal a rank and its process group, once each: a rank may have gone into another group."""
    if read_group(pid) not in (pid, 0):  # of one that has ended the group may live on
        signal_process(pid, number)
    signal_group(pid, number)


def has_children() -> bool:
    """Tell whether this process has any child, also one that has ended; lists may miss some for a moment."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def end_children() -> None:
    """Kill every child of this process, and every one that it is given meanwhile, until there is none."""
    while has_children():
        children = read_children()
        if children is None:
            me = os.getpid()
            children = {pid for pid, process in read_processes().items() if process.parent == me}
            if not children:
                return  # this system lists none: there is nobody that could be named
        for pid in children:
            signal_process(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0 if children else os.WNOHANG)
        except ChildProcessError:
            return
