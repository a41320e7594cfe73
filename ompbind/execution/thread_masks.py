"""Bind all threads of this process, and restore their affinity masks.

A new thread inherits the mask of the thread that starts it. So after all listed threads are bound, only
threads that started meanwhile can have another mask: they are found by listing again, until no thread is left
to bind. The kernel reuses the numbers of threads that have exited; the start time distinguishes two threads
with the same number.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack

from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.affinity import set_affinity
from ompbind.execution.process_settings import restore_affinity, warn
from ompbind.procfs.reader import list_threads, read_affinity, read_stat
from ompbind.record import Record

PASSES = 10
"""How often the threads are listed at most."""


class _Thread(Record):
    """A thread of this process; `start_ticks` is its start since boot, in clock ticks."""

    tid: int
    start_ticks: int


_Masks = dict[_Thread, CpuSet]


def bind_threads(cpus: CpuSet | None, undo: ExitStack) -> None:
    """Set the affinity mask of all threads of this process; None changes nothing.

    `undo` gives each thread its previous mask. Threads that have started meanwhile get the previous mask of
    the initial thread, unless they have bound themselves to other CPUs. Raises LaunchError if a mask cannot
    be set, if threads cannot be listed, or if new threads start faster than they are bound.
    """
    if cpus is None:
        return
    saved: _Masks = {}
    own_mask = read_affinity(os.getpid()) or read_affinity(0)  # the initial thread may have exited
    undo.callback(_restore_threads, saved, cpus, own_mask)
    _bind_threads(cpus, saved)


def _bind_threads(cpus: CpuSet, saved: _Masks) -> None:
    """Bind all threads and add their previous masks to `saved`."""
    for number, masks in enumerate(_read_new_masks()):
        unbound = {thread: mask for thread, mask in masks.items() if number == 0 or mask != cpus}
        if not unbound:
            return
        saved.update(unbound)
        for thread in unbound:
            try:
                set_affinity(cpus, thread.tid)
            except ProcessLookupError:
                pass  # the thread has exited
    raise LaunchError(
        f"new threads still start after {PASSES} attempts to bind all threads",
        hint="bind the process before it starts its threads",
    )


def _restore_threads(saved: _Masks, cpus: CpuSet, own_mask: CpuSet) -> None:
    """Restore the saved masks; other threads within `cpus` have inherited their masks, and get `own_mask`."""
    for masks in _read_new_masks():
        wanted = {
            thread: saved.get(thread) or (own_mask if mask <= cpus else mask)
            for thread, mask in masks.items()
        }
        if wanted == masks:
            return
        for thread, mask in wanted.items():
            restore_affinity(thread.tid, mask)
    warn(f"new threads still start after {PASSES} attempts to restore all threads: some may stay bound")


def _read_new_masks() -> Iterator[_Masks]:
    """Yield the masks of all threads, then the masks of threads that have started since."""
    known: set[_Thread] = set()
    for _ in range(PASSES):
        new = {
            thread: mask
            for thread in _list_threads()
            if thread not in known and (mask := read_affinity(thread.tid))
        }
        known.update(new)
        yield new


def _list_threads() -> list[_Thread]:
    """Return the threads of this process whose masks can be set; raises LaunchError if they are unknown."""
    pid = os.getpid()
    tids = list_threads(pid)
    if not tids:
        raise LaunchError(
            "the threads of this process cannot be listed: /proc is missing, or of another PID namespace",
            hint="mount /proc, or start the process inside 'with placed(...)'",
        )
    stats = ((tid, read_stat(f"{pid}/task/{tid}")) for tid in sorted(tids))
    return [
        _Thread(tid=tid, start_ticks=stat.start_ticks)
        for tid, stat in stats
        if stat and not stat.has_fixed_affinity
    ]
