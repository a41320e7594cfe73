"""Settings of this process that a rank has. Each `set_` function adds to `undo` how it is restored.

`undo` has functions and values only, not generators: a forked child that drops the stack of its parent must
not restore anything, but a generator runs its `finally` when it is deleted.
"""

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from ompbind.cpuset import CpuSet, named
from ompbind.errors import LaunchError, RequestError
from ompbind.execution import mempolicy
from ompbind.execution.affinity import set_affinity
from ompbind.execution.mempolicy import replace_unsupported_policies
from ompbind.machine.model import MAX_CPUS
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_variables import Variables, apply_variables


class _Lock:
    """Serialises all that sets os.environ, which all threads share; `holder` is a thread identifier."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: int | None = None


_lock = _Lock()


def _replace_lock() -> None:
    """Use a new lock in a forked child, which has no thread that could release the old one."""
    global _lock
    _lock = _Lock()


os.register_at_fork(after_in_child=_replace_lock)


@contextmanager
def one_thread_at_a_time(message: str, *, hint: str) -> Iterator[None]:
    """Wait for other threads; raises LaunchError with a message if this thread is in such a block already."""
    lock, this_thread = _lock, threading.get_ident()
    if lock.holder == this_thread:
        raise LaunchError(message, hint=hint)
    with lock.lock:
        lock.holder = this_thread
        try:
            yield
        finally:
            lock.holder = None


def check_machine(plan: Plan) -> None:
    """Raise RequestError if a plan is not for this machine."""
    if plan.machine.source != LIVE:
        raise RequestError(
            f"the plan is not for this machine, but for {plan.machine.source!r}",
            hint="make the plan from read_machine() without a topology source",
        )


def set_variables(variables: Variables, undo: ExitStack) -> None:
    """Set and remove variables of os.environ."""
    undo.callback(apply_variables, {name: os.environ.get(name) for name in variables}, os.environ)
    apply_variables(variables, os.environ)


def set_own_affinity(cpus: CpuSet | None, undo: ExitStack, first: int | None = None) -> None:
    """Set the affinity mask of the calling thread; None changes nothing. Raises LaunchError.

    The thread first moves to the CPU `first`, if it is not None: from there it starts processes.
    """
    if cpus is None:
        return
    saved, ident, tid = CpuSet(os.sched_getaffinity(0)), threading.get_ident(), threading.get_native_id()
    # Another thread may close an ExitStack. In the same thread 0 is right, even after a fork.
    undo.callback(lambda: restore_affinity(0 if threading.get_ident() == ident else tid, saved))
    if first is not None:
        set_affinity(CpuSet((first,)))
    set_affinity(cpus)


def restore_affinity(tid: int, saved: CpuSet) -> None:
    """Restore the affinity mask of a thread (0: the caller); if no CPU of it is usable, allow all CPUs."""
    try:
        os.sched_setaffinity(tid, saved)
    except ProcessLookupError:
        pass  # the thread has exited
    except OSError:
        # The kernel does the same with threads whose last CPU goes offline.
        os.sched_setaffinity(tid, range(MAX_CPUS))
        warn(f"{named('CPU', saved)} can no longer be used: the thread is allowed on all usable CPUs")


def set_memory_policy(plan: Plan, placement: Placement, undo: ExitStack) -> None:
    """Set the memory policy of a rank in the calling thread; a thread can only set its own policy."""
    if placement.memory is None:
        return
    supported = replace_unsupported_policies(plan.replace(placements=(placement,), notes=()))
    for note in supported.notes:
        warn(note.text)
    policy = supported.placements[0].memory
    if policy is None:
        return
    ident, saved = threading.get_ident(), mempolicy.read_policy()

    def restore() -> None:
        if threading.get_ident() == ident:
            mempolicy.restore_policy(saved)
        else:
            warn(f"the memory policy {policy} was set by another thread, which keeps it")

    undo.callback(restore)
    mempolicy.set_policy(policy)


_INTERNAL = (__name__.partition(".")[0], "contextlib")


def warn(text: str) -> None:
    """Warn (RuntimeWarning) of the line outside of ompbind and contextlib that led to this call."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - inspect takes long to import
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, level)
