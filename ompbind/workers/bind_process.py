"""Bind the process that calls this, with all its threads, as one rank of a plan.

This is for processes that another program starts: actors, workers of pools, forked workers. `placed` is
better where it is possible, because a process that is bound from its start loads all libraries with the
variables of its rank.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TypeAlias

from ompbind.commands.rank_variables import Variables
from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError
from ompbind.execution.spawn import set_affinity
from ompbind.inspection.diagnosis import is_library
from ompbind.planning.plan import Placement, Plan
from ompbind.procfs.reader import list_threads, read_affinity, read_mapped_files, read_stat
from ompbind.programs.libraries import Library, name_libraries
from ompbind.record import Record
from ompbind.workers import placed
from ompbind.workers.placed import Selection

# A new thread inherits the mask of the thread that starts it. So after all listed threads are bound, only
# threads that started meanwhile can have another mask: they are found by listing again, until no thread is
# left to bind. The kernel reuses the numbers of threads that have exited; the start time distinguishes two
# threads with the same number.

PASSES = 10  # how often the threads are listed at most

_Masks: TypeAlias = dict[tuple[int, int], CpuSet]
"""The mask of each thread of this process: by its TID, and its start since boot in clock ticks."""


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
    for number, masks in enumerate(_read_new_masks()):
        unbound = {thread: mask for thread, mask in masks.items() if number == 0 or mask != cpus}
        if not unbound:
            return
        saved.update(unbound)
        for tid, _ in unbound:
            try:
                set_affinity(cpus, tid)
            except ProcessLookupError:
                pass  # the thread has exited
    text = f"new threads still start after {PASSES} attempts to bind all threads"
    raise LaunchError(text, hint="bind the process before it starts its threads")


def _restore_threads(saved: _Masks, cpus: CpuSet, own_mask: CpuSet) -> None:
    """Restore the saved masks; other threads within `cpus` have inherited their masks, and get `own_mask`."""
    for masks in _read_new_masks():
        inherited = {thread: own_mask if mask <= cpus else mask for thread, mask in masks.items()}
        wanted = {thread: saved.get(thread) or mask for thread, mask in inherited.items()}
        if wanted == masks:
            return
        for (tid, _), mask in wanted.items():
            placed.restore_affinity(tid, mask)
    text = f"new threads still start after {PASSES} attempts to restore all threads"
    placed.warn(f"{text}: some may stay bound")


def _read_new_masks() -> Iterator[_Masks]:
    """Yield the masks of all threads that can be bound, then the masks of threads that have started since."""
    known, pid = set[tuple[int, int]](), os.getpid()
    for _ in range(PASSES):
        tids = list_threads(pid)
        if not tids:
            why = "/proc is missing, or of another PID namespace"
            hint = "mount /proc, or start the process inside 'with placed(...)'"
            raise LaunchError(f"the threads of this process cannot be listed: {why}", hint=hint)
        stats = ((tid, read_stat(f"{pid}/task/{tid}")) for tid in sorted(tids))
        threads = {(tid, stat.start_ticks) for tid, stat in stats if stat and not stat.has_fixed_affinity}
        new = {thread: mask for thread in threads - known if (mask := read_affinity(thread[0]))}
        known.update(new)
        yield new


class ProcessBinding(Record):
    """What `bind_process` has bound; `runtimes` are the OpenMP runtimes that were loaded before.

    These runtimes may have read their variables before: their numbers of threads and places then stay.
    """

    placement: Placement
    runtimes: tuple[Library, ...]


_undo: ExitStack | None = None
"""Restores the settings from before `bind_process`; None while the process is not bound."""


def _forget_binding() -> None:
    """Forget the binding in a forked child, which stays bound: its threads are others, it may bind itself."""
    global _undo
    _undo = None


os.register_at_fork(after_in_child=_forget_binding)


def bind_process(
    plan: Plan, rank: int, *, run_id: str = "", variables: Selection = "all", extra: Variables | None = None
) -> ProcessBinding:
    """Bind this process as one rank of a plan: its threads, and its variables for what it loads later.

    All threads get the affinity mask of the rank. The calling thread gets the memory policy of the rank.
    os.environ gets the variables, which `variables` and `extra` select as for `placed`. No OpenMP runtime is
    started or changed: the result names the runtimes that were loaded already. If anything fails, all
    settings are restored.

    Raises RequestError as `placed`. Raises LaunchError if a mask cannot be set, if the memory policy cannot
    be set and the request is strict, if the process is bound already, inside 'with placed(...)', or if a
    loaded runtime shows that the caller is in a parallel region. Warns as `placed`.
    """
    global _undo
    text = "bind_process cannot be called inside 'with placed(...)'"
    with placed.one_thread_at_a_time(text, hint="leave the block first"):
        # while no other thread changes os.environ
        changes = placed.make_changes(plan, rank, os.environ, run_id, variables, extra)
        if "numba" in sys.modules and "NUMBA_NUM_THREADS" not in (extra or {}):
            # Numba reads it at each compilation; after its threads have started, another value is an error.
            changes = {name: value for name, value in changes.items() if name != "NUMBA_NUM_THREADS"}
        placed.check_machine(plan)
        placement = plan.placements[rank]
        if _undo is not None:
            raise LaunchError("bind_process has bound this process already", hint="call unbind() first")
        loaded = name_libraries(read_mapped_files("self", is_library))
        runtimes = tuple(library for library in loaded if library.family)
        for runtime in runtimes:
            if _is_in_region(runtime):
                text = f"bind_process is called in a parallel region of {runtime.kind.label}"
                raise LaunchError(text, hint="call bind_process before or after the region")
        with ExitStack() as undo:
            placed.set_variables(changes, undo)
            bind_threads(placement.cpuset if plan.machine.bindable else None, undo)
            placed.set_memory_policy(plan, placement, undo)
            _undo = undo.pop_all()
    return ProcessBinding(placement=placement, runtimes=runtimes)


def unbind() -> None:
    """Restore the affinity masks, the variables and the memory policy from before `bind_process`.

    Threads that have started since get the previous mask of the initial thread. A memory policy can be
    restored only by the thread that called `bind_process`; in another thread there is a RuntimeWarning, as
    there is if new threads start faster than they are restored.
    Raises LaunchError if `bind_process` has not bound this process, or inside 'with placed(...)'.
    """
    global _undo
    text = "unbind cannot be called inside 'with placed(...)'"
    with placed.one_thread_at_a_time(text, hint="leave the block first"):
        if _undo is None:
            raise LaunchError("this process is not bound by bind_process", hint="call bind_process first")
        undo, _undo = _undo, None
        undo.close()


def _is_in_region(runtime: Library) -> bool:
    """Return whether the caller is in a parallel region of a loaded runtime; False if that is unknown."""
    function = runtime.family.facts.region_function if runtime.family else ""
    try:
        import ctypes  # noqa: PLC0415 - door: loads libffi

        return bool(getattr(ctypes.CDLL(runtime.path, mode=os.RTLD_NOLOAD), function)())
    except (ImportError, OSError, AttributeError):
        return False  # no ctypes; the file was replaced; a library without this function
