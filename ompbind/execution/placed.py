"""Workers: processes that a Python program starts itself, each with the CPUs and variables of one rank.

A process takes its CPUs from the thread that starts it, and its variables from the environment. So for the
moment of a start both are made those of the rank, and put back.
"""

import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ompbind.cpuset import CpuSet, named
from ompbind.errors import LaunchError, RequestError
from ompbind.execution.affinity import confine
from ompbind.machine.model import CPUS
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_command import (
    Job,
    RankIdentity,
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

    `base` is what it is made from: os.environ as it is now, when it is left out. The run is called
    `run_id`, or "python-" and the number of this process. Raises RequestError when the plan has no such rank.

    >>> from ompbind import Request, make_plan, read_machine
    >>> plan = make_plan(read_machine("synthetic:pack:2 core:4 pu:2"), Request(ranks=2))
    >>> env = make_environment(plan, 1, {"PATH": "/bin", "OMP_NUM_THREADS": "64"})
    >>> env["PATH"], env["OMP_NUM_THREADS"], env["OMP_PLACES"], env["RANK"]
    ('/bin', '4', '{8,10,12,14}', '1')
    """
    job = _job(os.environ if base is None else base, run_id)
    return dict(make_command(plan, _seat(plan, rank), job).env)


@contextmanager
def placed(plan: Plan, rank: int, *, run_id: str = "") -> Iterator[Placement]:
    """Start processes as one rank of a plan: what the body of this `with` starts has its CPUs and variables.

    Inside, the calling thread is confined to the CPUs of the rank and has its memory policy, os.environ is
    what `make_environment` makes of it, and the default start method of multiprocessing is spawn. However the
    body ends, the thread may then run where it could before, with the memory policy that it had, and the
    start method and every variable that ompbind decides are as they were; other variables stay as the body
    leaves them. One thread at a time is inside, others wait.

    Raises RequestError when the plan has no such rank or is for a recorded machine, LaunchError when the CPUs
    cannot be bound to, or memory cannot and the request is strict, or when the calling thread is inside
    already. Warns (RuntimeWarning) of workers that multiprocessing did not spawn, of memory that does not
    come from where it should, and when nothing is left of the CPUs that the thread had.
    """
    identity = _seat(plan, rank)
    if plan.machine.source != LIVE:
        raise RequestError(
            f"workers run on this machine, the plan is for {plan.machine.source!r}",
            hint="make the plan from read_machine(), without a topology source",
        )
    placement = plan.placements[rank]
    variables = make_variables(plan, identity, _job({}, run_id))
    cpus = placement.cpuset if plan.machine.bindable else None
    with _taking_turns(), _spawning(), _having(variables), _confined(cpus), _remembering(plan, placement):
        yield placement


def _seat(plan: Plan, rank: int) -> RankIdentity:
    identities = make_local_identities(plan)
    if type(rank) is int and 0 <= rank < len(identities):  # True is one, too
        return identities[rank]
    raise RequestError(
        f"there is no rank {rank!r}",
        hint=f"the plan has {named('rank', range(len(identities)))}, counted from 0",
    )


def _job(base: Mapping[str, str], run_id: str) -> Job:
    return Job(argv=(), run_id=run_id or f"python-{os.getpid()}", base=base)


class _Turn:
    """Whose turn it is to be inside: the environment is one for all threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: int | None = None


_turn = _Turn()


def _forget_turn() -> None:
    """Begin anew in a forked child: the thread that held the turn may not be there to give it back."""
    global _turn
    _turn = _Turn()


os.register_at_fork(after_in_child=_forget_turn)


@contextmanager
def _taking_turns() -> Iterator[None]:
    turn, me = _turn, threading.get_ident()
    if turn.holder == me:
        raise LaunchError(
            "this thread is placing a worker already",
            hint="start the worker, leave 'with placed(...)', then place the next one",
        )
    with turn.lock:
        turn.holder = me
        try:
            yield
        finally:
            turn.holder = None


@contextmanager
def _spawning() -> Iterator[None]:
    """Have multiprocessing spawn for a while: what is forked has its libraries, and their threads, already.

    Its resource tracker serves the whole program to its end; started inside, it would stay narrowed.
    """
    import multiprocessing  # late: making an environment needs none of it
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()
    before = multiprocessing.get_start_method(allow_none=True)
    known = set(multiprocessing.active_children())
    try:
        multiprocessing.set_start_method("spawn", force=True)
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)
    _warn_of_others(set(multiprocessing.active_children()) - known)


def _warn_of_others(workers: "set[BaseProcess]") -> None:
    """Warn of those workers that a start method other than spawn has made, as far as they still run."""
    from multiprocessing import get_context

    for worker in workers:
        if isinstance(worker, get_context("forkserver").Process):
            why = "the fork server started it, with that one's CPUs and variables"
        elif isinstance(worker, get_context("fork").Process):
            why = "it was forked, so libraries loaded before keep the threads they have"
        else:
            continue
        warnings.warn(f"{worker.name}: {why}; use get_context('spawn')", RuntimeWarning, _CALLER)


_CALLER = 6
"""Frames from a warning to the `with placed(...)`: a helper, its caller, contextlib, `placed`, contextlib."""


@contextmanager
def _having(variables: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    try:
        _set(variables)
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _confined(cpus: CpuSet | None) -> Iterator[None]:
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    ident, number = threading.get_ident(), threading.get_native_id()
    try:
        confine(cpus)
        yield
    finally:
        # An ExitStack may be closed by another thread; 0 is right even in a process that the body forked.
        _give_back(0 if threading.get_ident() == ident else number, before)


@contextmanager
def _remembering(plan: Plan, placement: Placement) -> Iterator[None]:
    """Have the memory policy of a rank for a while; a thread can only be given one by itself."""
    if placement.memory is None:
        yield
        return
    from ompbind.execution import mempolicy  # late: as few need it

    settled = mempolicy.settle_memory(plan.replace(placements=(placement,), notes=()))
    for note in settled.notes:
        warnings.warn(note.text, RuntimeWarning, _CALLER - 1)
    policy = settled.placements[0].memory
    if policy is None:
        yield
        return
    ident, before = threading.get_ident(), mempolicy.read_policy()
    try:
        mempolicy.take_policy(policy)
        yield
    finally:
        if threading.get_ident() == ident:
            mempolicy.put_back(before)
        else:
            kept = f"the thread that began to place a worker keeps its memory policy, {policy}"
            warnings.warn(f"{kept}: another one has ended that", RuntimeWarning, _CALLER)


def _give_back(thread: int, before: set[int]) -> None:
    """Let a thread run where it could before, or everywhere when nothing of that is left."""
    try:
        os.sched_setaffinity(thread, before)
    except ProcessLookupError:
        pass  # the thread has ended: there is nobody to give them to
    except OSError:
        # The kernel does the same with threads whose last CPU goes offline.
        os.sched_setaffinity(thread, range(CPUS))
        gone = f"{named('CPU', before)} cannot be used any more: the thread may run on all that can"
        warnings.warn(gone, RuntimeWarning, _CALLER)
