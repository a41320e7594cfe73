"""Kin: the processes that descend from this one, also those whose own parents have ended.

A *subreaper* becomes the parent of every descendant that loses its own: no daemon gets out of its sight.
"""

import os
import signal
from collections.abc import Collection, Mapping

from ompbind.record import Record

_PR_SET_CHILD_SUBREAPER = 36


class Process(Record):
    """A process that lives; zombies do not."""

    parent: int
    group: int
    session: int


def adopt_orphans() -> bool:
    """Become a subreaper; tells whether this system can do that."""
    try:
        # What ctypes is made of: to import all of it takes a tenth of the time that a rank needs to start.
        from _ctypes import call_function, dlopen, dlsym

        prctl = dlsym(dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: this program itself
        return bool(call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0)
    except (ImportError, OSError):
        return False


def read_children() -> set[int] | None:
    """Return the children of this process, of one thread; None where the kernel does not list them.

    While some of them end the kernel may miss others.
    """
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return set(map(int, file.read().split()))
    except OSError:
        return None


def read_processes() -> dict[int, Process]:
    """Return all processes that live, as far as this one may know of them."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    found = ((pid, _read_process(pid)) for pid in pids)
    return {pid: process for pid, process in found if process is not None}


def _read_process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *numbers = file.read().rpartition(b")")[2].split()[:4]
            parent, group, session = map(int, numbers)
    except (OSError, ValueError):
        return None
    return None if state in b"ZX" else Process(parent=parent, group=group, session=session)


def read_group(pid: int) -> int:
    """Return the process group of a process; 0 when it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def find_descendants(processes: Mapping[int, Process], roots: Collection[int]) -> set[int]:
    """Return some processes together with all that descend from them."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    new = list(roots)
    while new:
        pid = new.pop()
        if pid not in found:
            found.add(pid)
            new.extend(children.get(pid, ()))
    return found


def read_variables(pid: int, names: Collection[str]) -> dict[str, str] | None:
    """Return some variables of the environment that a process was executed with, if that may be read.

    None when there are no variables at all, as of a process that is just executing a command.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read()
    except OSError:
        return {}
    pairs = (pair.decode("utf-8", "surrogateescape").partition("=") for pair in data.split(b"\0"))
    return {name: value for name, _, value in pairs if name in names} if data else None


def read_caught_signals(pid: int) -> set[int]:
    """Return the signals that a process has handlers for."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            mask = next(int(line[7:], 16) for line in file if line.startswith(b"SigCgt:"))
    except (OSError, StopIteration):
        return set()
    return {number + 1 for number in range(mask.bit_length()) if mask >> number & 1}


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
