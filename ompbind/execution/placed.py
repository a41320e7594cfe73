"""Workers: processes that a Python program starts itself, each with the CPUs and variables of one rank.

A process inherits the affinity mask and the memory policy of the thread that starts it, and the environment
of the program. `placed` sets all three for a `with` block as a rank has them, and restores them afterwards.
"""

import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ompbind.cpuset import CpuSet, named
from ompbind.errors import LaunchError, RequestError
from ompbind.execution.affinity import set_affinity
from ompbind.machine.model import MAX_CPUS
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_command import (
    RankIdentity,
    RunSpec,
    make_command,
    make_local_identities,
    make_variables,
)

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


def make_environment(
    plan: Plan, rank: int, base: Mapping[str, str] | None = None, *, run_id: str = ""
) -> dict[str, str]:
    """Return the whole environment of one rank of a plan, as `ompbind run` gives it to a rank.

    `base` is the environment to start from, by default os.environ as it is now. `run_id` is by default
    "python-" and the pid of this process. Raises RequestError if the plan has no such rank.

    >>> from ompbind import Request, make_plan, read_machine
    >>> plan = make_plan(read_machine("synthetic:pack:2 core:4 pu:2"), Request(ranks=2))
    >>> env = make_environment(plan, 1, {"PATH": "/bin", "OMP_NUM_THREADS": "64"})
    >>> env["PATH"], env["OMP_NUM_THREADS"], env["OMP_PLACES"], env["RANK"]
    ('/bin', '4', '{8,10,12,14}', '1')
    """
    spec = _make_run_spec(os.environ if base is None else base, run_id)
    return dict(make_command(plan, _find_identity(plan, rank), spec).env)


@contextmanager
def placed(plan: Plan, rank: int, *, run_id: str = "") -> Iterator[Placement]:
    """Start processes as one rank of a plan: what this `with` block starts has its CPUs and variables.

    Within the block

    - the calling thread has the affinity mask and the memory policy of the rank
    - os.environ has the variables that `make_environment` returns
    - the default start method of multiprocessing is spawn

    At the end, also after an exception, all of these are restored. Only variables that ompbind sets are
    restored; other changes of os.environ stay. One thread at a time can be in such a block, others wait.

    Raises RequestError if the plan has no such rank or is for another machine. Raises LaunchError if the
    affinity mask cannot be set, if the memory policy cannot be set and the request is strict, or if the
    calling thread is in such a block already. Warns (RuntimeWarning) of workers that multiprocessing did not
    spawn, of memory policies that cannot be set, and of an affinity mask that cannot be restored.
    """
    identity = _find_identity(plan, rank)
    if plan.machine.source != LIVE:
        raise RequestError(
            f"the plan is not for this machine, but for {plan.machine.source!r}",
            hint="make the plan from read_machine() without a topology source",
        )
    placement = plan.placements[rank]
    variables = make_variables(plan, identity, _make_run_spec({}, run_id))
    cpus = placement.cpuset if plan.machine.bindable else None
    with (
        _one_thread_at_a_time(),
        _spawn_by_default(),
        _environment(variables),
        _affinity(cpus),
        _memory_policy(plan, placement),
    ):
        yield placement


def _find_identity(plan: Plan, rank: int) -> RankIdentity:
    identities = make_local_identities(plan)
    if type(rank) is int and 0 <= rank < len(identities):  # isinstance would accept True
        return identities[rank]
    raise RequestError(
        f"there is no rank {rank!r}",
        hint=f"the plan has {named('rank', range(len(identities)))}, counted from 0",
    )


def _make_run_spec(base: Mapping[str, str], run_id: str) -> RunSpec:
    return RunSpec(argv=(), run_id=run_id or f"python-{os.getpid()}", base=base)


class _Lock:
    """Serialises `placed`, as os.environ is shared by all threads; `holder` is a thread identifier."""

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
def _one_thread_at_a_time() -> Iterator[None]:
    lock, this_thread = _lock, threading.get_ident()
    if lock.holder == this_thread:
        raise LaunchError(
            "'with placed(...)' blocks cannot be nested",
            hint="start the worker, leave the block, then enter the next block",
        )
    with lock.lock:
        lock.holder = this_thread
        try:
            yield
        finally:
            lock.holder = None


@contextmanager
def _spawn_by_default() -> Iterator[None]:
    """Make spawn the default start method: a forked worker inherits loaded libraries, sized for all CPUs."""
    import multiprocessing  # late: `make_environment` does not need it
    from multiprocessing import resource_tracker

    # The resource tracker runs until the program exits, so it must not inherit the CPUs of the rank.
    resource_tracker.ensure_running()
    before = multiprocessing.get_start_method(allow_none=True)
    known = set(multiprocessing.active_children())
    try:
        multiprocessing.set_start_method("spawn", force=True)
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)
    _warn_of_unspawned(set(multiprocessing.active_children()) - known)


def _warn_of_unspawned(workers: "set[BaseProcess]") -> None:
    """Warn of running workers that were started with another start method than spawn."""
    from multiprocessing import get_context

    for worker in workers:
        if isinstance(worker, get_context("forkserver").Process):
            why = "it was started by the fork server, with the CPUs and variables of that process"
        elif isinstance(worker, get_context("fork").Process):
            why = "it was forked, so libraries that are already loaded keep their number of threads"
        else:
            continue
        warnings.warn(f"{worker.name}: {why}; use get_context('spawn')", RuntimeWarning, _CALLER)


_CALLER = 6
"""Frames from a warning to `with placed(...)`: a helper, its caller, contextlib, `placed`, contextlib."""


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    saved = {name: os.environ.get(name) for name in variables}
    try:
        _set_variables(variables)
        yield
    finally:
        _set_variables(saved)


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _affinity(cpus: CpuSet | None) -> Iterator[None]:
    if cpus is None:
        yield
        return
    saved = os.sched_getaffinity(0)
    ident, tid = threading.get_ident(), threading.get_native_id()
    try:
        set_affinity(cpus)
        yield
    finally:
        # Another thread may close an ExitStack. In the same thread 0 is right, even after a fork.
        _restore_affinity(0 if threading.get_ident() == ident else tid, saved)


@contextmanager
def _memory_policy(plan: Plan, placement: Placement) -> Iterator[None]:
    """Set the memory policy of a rank for a while; a thread can only set its own policy."""
    if placement.memory is None:
        yield
        return
    from ompbind.execution import mempolicy  # late: few plans have memory policies

    supported = mempolicy.replace_unsupported_policies(plan.replace(placements=(placement,), notes=()))
    for note in supported.notes:
        warnings.warn(note.text, RuntimeWarning, _CALLER - 1)
    policy = supported.placements[0].memory
    if policy is None:
        yield
        return
    ident, saved = threading.get_ident(), mempolicy.read_policy()
    try:
        mempolicy.set_policy(policy)
        yield
    finally:
        if threading.get_ident() == ident:
            mempolicy.restore_policy(saved)
        else:
            text = f"another thread left 'with placed(...)': the thread that entered it keeps policy {policy}"
            warnings.warn(text, RuntimeWarning, _CALLER)


def _restore_affinity(tid: int, saved: set[int]) -> None:
    """Restore the affinity mask of a thread (0: the caller); if no CPU of it is usable, allow all CPUs."""
    try:
        os.sched_setaffinity(tid, saved)
    except ProcessLookupError:
        pass  # the thread has exited
    except OSError:
        # The kernel does the same with threads whose last CPU goes offline.
        os.sched_setaffinity(tid, range(MAX_CPUS))
        text = f"{named('CPU', saved)} can no longer be used: the thread is allowed on all usable CPUs"
        warnings.warn(text, RuntimeWarning, _CALLER)
