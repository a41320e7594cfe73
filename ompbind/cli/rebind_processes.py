"""Give the threads of running processes other CPUs: `ompbind rebind`.

A process belongs to its nearest ancestor, or itself, that is a *root*, and gets what is wanted for that root.
New threads and processes inherit the mask of the thread that creates them. So all threads are listed again
until none has a wrong mask, at most PASSES times:

    list processes --> list their threads --> set the wrong masks --> list processes ... --> all masks right

An OpenMP runtime that binds its threads can set a mask again at any time. What counts is the last list.
"""

import os
from collections import Counter
from collections.abc import Mapping

from ompbind.commands.rank_variables import SUPERVISOR_NAME
from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError, RequestError
from ompbind.execution.spawn import set_affinity
from ompbind.procfs.parsers import find_descendants, find_owners, status_value
from ompbind.procfs.reader import list_threads, read_affinity, read_processes, read_stat, read_status
from ompbind.record import Record

PASSES = 20  # how often threads are listed at most
_ATTEMPTS = 5  # how often the mask of a thread is set at most
MaskCounts = Mapping[CpuSet, int]  # numbers of threads by their affinity mask


class WantedCpus(Record):
    """What the threads of a root and of its descendants are to get; `rank` is None if they belong to no rank.

    A thread whose mask is not among `masks` gets `cpus`.
    """

    rank: int | None
    cpus: CpuSet
    masks: frozenset[CpuSet]


class ReboundProcess(Record):
    """A process with the masks of its threads before and after; why masks could not be set, for each thread.

    In a dry run `after` are the masks that its threads would get.
    """

    pid: int
    name: str
    wanted: WantedCpus
    before: MaskCounts
    after: MaskCounts
    failures: tuple[str, ...] = ()

    @property
    def is_bound(self) -> bool:
        """Whether all threads have one of the masks that are right."""
        return self.after.keys() <= self.wanted.masks and not self.failures


def check_roots(pids: tuple[int, ...]) -> None:
    """Raise RequestError for processes that must keep their CPUs, or that belong to other users."""
    stats, own = read_processes(), os.geteuid()
    for pid in pids:
        stat = stats.get(pid)
        if pid == 1 or (stat and stat.is_kernel):
            what = "starts all others" if pid == 1 else "is a kernel thread"
            text = f"process {pid} {what}: its CPUs are not changed"
            raise RequestError(text, hint="name the processes of one program")
        others = {int(word) for word in (status_value(read_status(pid), "Uid") or "").split()[:2]} - {own}
        if own and others:
            text = f"process {pid} belongs to another user (user ID {max(others)})"
            raise RequestError(text, hint="only the owner and root may change its CPUs")
        members = find_descendants(stats, (pid,)) & stats.keys()
        if any(stats[member].name == SUPERVISOR_NAME for member in members):
            text = f"process {pid} or a process below it is ompbind's: it supervises ranks with a plan"
            hint = "name the run ('ompbind ps' lists runs), or the processes of a command"
            raise RequestError(text, hint=hint)


def find_workers(pid: int, number: int) -> tuple[int, ...]:
    """Return the busiest children of a process, by the CPU time of each with its descendants so far.

    A process with a single child is a wrapper, as `sh -c`: then the child counts. Raises RequestError if
    there are fewer children.
    """
    stats = read_processes()
    children: list[int] = [pid]
    while len(children) == 1:
        parent = children[0]
        children = [child for child, stat in stats.items() if stat.parent == parent and child != os.getpid()]
    busy = dict.fromkeys(children, 0)
    for child in children:
        members = (stats[member] for member in find_descendants(stats, (child,)))
        busy[child] = sum(stat.busy_ticks + stat.reaped_ticks for stat in members)
    if len(children) < number:
        text = f"process {parent} has {len(children)} child processes, fewer than -n {number}"
        raise RequestError(text, hint="name a process for each rank, or use a smaller -n")
    return tuple(sorted(sorted(children, key=lambda child: (-busy[child], child))[:number]))


def rebind_processes(roots: Mapping[int, WantedCpus], *, dry_run: bool) -> tuple[ReboundProcess, ...]:
    """Set the masks of all threads of the roots and of their descendants, and return what was changed.

    Processes and threads that exit meanwhile are left out, also if the kernel gives their PID to another
    process.
    """
    known: dict[int, tuple[WantedCpus, int]] = {}  # and the start time
    before: dict[int, MaskCounts] = {}
    failed: dict[int, str] = {}  # by TID
    attempts = Counter[int]()
    for _ in range(PASSES):  # one if nothing is changed, as with `dry_run`
        is_changed = False
        stats = read_processes()
        for pid, wanted in find_owners(stats, roots).items():
            if pid in stats and pid != os.getpid():
                known.setdefault(pid, (wanted, stats[pid].start_ticks))
        for pid, (wanted, started) in known.items():
            same = pid in stats and stats[pid].start_ticks == started
            masks = _read_masks(pid) if same else {}
            before.setdefault(pid, Counter(masks.values()))
            wrong = [tid for tid, mask in masks.items() if mask not in wanted.masks and tid not in failed]
            for tid in wrong if not dry_run else ():
                is_changed = True
                attempts[tid] += 1
                _set_mask(tid, wanted.cpus, failed, attempts[tid])
        if not is_changed:
            break
    found = []
    for pid, (wanted, started) in known.items():
        stat, masks = read_stat(pid), _read_masks(pid)
        if masks and stat and stat.start_ticks == started:
            after = Counter(
                wanted.cpus if dry_run and mask not in wanted.masks else mask for mask in masks.values()
            )
            why = tuple(failed[tid] for tid in masks if tid in failed)
            rebound = ReboundProcess(pid=pid, name=stat.name, wanted=wanted, before=before[pid], after=after)
            found.append(rebound.replace(failures=why))
    return tuple(sorted(found, key=lambda each: (each.wanted.rank is None, each.wanted.rank, each.pid)))


def _read_masks(pid: int) -> dict[int, CpuSet]:
    return {tid: mask for tid in list_threads(pid) if (mask := read_affinity(tid))}


def _set_mask(tid: int, cpus: CpuSet, failed: dict[int, str], attempt: int) -> None:
    stat = read_stat(tid)
    if attempt > _ATTEMPTS:
        failed[tid] = "the program or an OpenMP runtime sets another mask again and again"
        return
    if stat and stat.has_fixed_affinity:
        failed[tid] = f"the kernel fixes the CPUs of {stat.name}"
        return
    try:
        set_affinity(cpus, tid)
    except ProcessLookupError:
        pass
    except LaunchError as error:
        # If neither the kernel nor the cpuset is the reason, another thread has set another mask since.
        if isinstance(error.__cause__, OSError) or read_affinity(tid) <= cpus:
            failed[tid] = error.message
