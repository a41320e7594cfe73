"""The ancestors of a rank: which launcher is the innermost, and whether it has bound the rank."""

from collections.abc import Iterable, Iterator, Sequence

from ompbind.cpuset import CpuSet
from ompbind.machine.read.linux_cgroup import read_limits
from ompbind.machine.read.root import Root, whole_number
from ompbind.procfs.parsers import status_value
from ompbind.record import Record


class Ancestor(Record):
    """The pid and the name of the parent of a rank, of its parent, and so on."""

    pid: int
    name: str


def read_ancestors(root: Root, pid: int) -> Iterator[Ancestor]:
    """Yield the parent of a process, its parent, and so on, up to the first process of the system."""
    status = _read_status(root, pid)
    for _ in range(64):
        pid = whole_number(status_value(status, "PPid")) or 0
        if pid <= 1:
            return
        status = _read_status(root, pid)
        yield Ancestor(pid=pid, name=status_value(status, "Name") or "")


def find_daemon(ancestors: Iterable[Ancestor], names: Iterable[str]) -> Ancestor | None:
    """Return the nearest ancestor with one of some names; None if no ancestor has, or if it is hidden."""
    known = set(names)
    return next((ancestor for ancestor in ancestors if ancestor.name in known), None)


def find_starter(ancestors: Sequence[Ancestor], daemons: Iterable[str]) -> int | None:
    """Return the pid of the process that started a rank; None if it is hidden.

    That is the launcher's daemon: the nearest ancestor with one of the names `daemons`, or else the parent.
    """
    starter = find_daemon(ancestors, daemons) or next(iter(ancestors), None)
    return starter.pid if starter else None


def read_launcher_cpus(root: Root, starter: int | None) -> CpuSet | None:
    """Return the CPUs of the process that started a rank, without those outside the cpuset of the rank.

    None if the process is hidden.
    """
    if starter is None:
        return None
    try:
        cpus = CpuSet.from_list(status_value(_read_status(root, starter), "Cpus_allowed_list") or "")
    except ValueError:
        return None
    limit = read_limits(root).cpuset
    return (cpus if limit is None else cpus & limit) or None


def _read_status(root: Root, pid: int) -> str:
    """Return the text of `proc/PID/status`, "" if there is none."""
    return root.read(f"proc/{pid}/status") or ""
