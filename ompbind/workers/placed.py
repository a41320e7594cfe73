"""Workers: processes that a Python program starts itself, each with the CPUs and variables of one rank.

A process inherits the affinity mask and the memory policy of the thread that starts it, and the environment
of the program. `placed` sets all three for a `with` block as a rank has them, and restores them afterwards.

Each `set_` function adds to `undo` how its setting is restored. `undo` has functions and values only, not
generators: a forked child that drops the stack of its parent must not restore anything, but a generator runs
its `finally` when it is deleted.
"""

import os
import sys
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Literal, TypeAlias

from ompbind.commands import environment
from ompbind.commands.environment import RunSpec
from ompbind.commands.rank_variables import Variables, apply_variables
from ompbind.compat.frameworks import FRAMEWORKS, FrameworkInput
from ompbind.compat.reading import fill_request, make_rank_variables
from ompbind.cpuset import CpuSet, named
from ompbind.errors import LaunchError, RequestError
from ompbind.execution import memory_policy
from ompbind.execution.spawn import set_affinity
from ompbind.machine.model import MAX_CPUS, Machine
from ompbind.machine.read import read_machine
from ompbind.machine.read.linux import LIVE
from ompbind.openmp.runtimes import PLACE_VARIABLES
from ompbind.planning.memory import make_unset_note
from ompbind.planning.plan import Placement, Plan, find_first_cpu
from ompbind.planning.request import Request

Selection: TypeAlias = Literal["all", "openmp"] | Collection[str]
"""Which variables to set: all that a rank has; all but the number of the rank and similar; or these names."""


def make_environment(
    plan: Plan,
    rank: int,
    base: Mapping[str, str] | None = None,
    *,
    run_id: str = "",
    variables: Selection = "all",
    extra: Variables | None = None,
) -> dict[str, str]:
    """Return the whole environment of one rank of a plan, as `ompbind run` gives it to a rank.

    `base` is the environment to start from, by default os.environ as it is now. `run_id` is by default
    "python-" and the pid of this process. `variables` and `extra` select variables as for `placed`. Raises
    RequestError if the plan has no such rank, or for names that ompbind does not set.

    >>> from ompbind import Request, make_plan, read_machine
    >>> plan = make_plan(read_machine("synthetic:pack:2 core:4 pu:2"), Request(ranks=2))
    >>> env = make_environment(plan, 1, {"PATH": "/bin", "OMP_NUM_THREADS": "64"})
    >>> env["PATH"], env["OMP_NUM_THREADS"], env["OMP_PLACES"], env["RANK"]
    ('/bin', '4', '{8,10,12,14}', '1')
    """
    env = dict(os.environ if base is None else base)
    apply_variables(make_changes(plan, rank, env, run_id, variables, extra), env)
    return env


def make_changes(
    plan: Plan, rank: int, base: Mapping[str, str], run_id: str, variables: Selection, extra: Variables | None
) -> Variables:
    """Return the variables of a rank to set (value) or remove (None) in `base`; raises RequestError."""
    ranks = len(plan.placements)
    if type(rank) is not int or not 0 <= rank < ranks:  # isinstance would accept True
        hint = f"the plan has {named('rank', range(ranks))}, counted from 0"
        raise RequestError(f"there is no rank {rank!r}", hint=hint)
    first, part = plan.find_part(rank)
    run_id, group = run_id or f"python-{os.getpid()}", environment.identify_group(plan, first, part)
    spec = RunSpec(argv=(), run_id=run_id, base=base, group=group)
    identity = environment.make_identities(len(part.placements))[rank - first]
    if part.request.compat:  # its variables were read, and would bind threads again
        removed, added = make_rank_variables(part.request.compat.framework)
        spec = spec.replace(removed_variables=removed, added_variables=added)
    everything = environment.make_variables(part, identity, spec)
    of_identity = environment.make_identity_variables(plan.placements[rank], identity, spec)
    names = _select_names(variables, everything, of_identity)
    for name, value in (extra or {}).items():
        if value is not None and not isinstance(value, str):  # such as a port as a number
            raise RequestError(
                f"extra: the value of {name!r} is {value!r}, which is not a string",
                hint=f"write extra={{{name!r}: {str(value)!r}}}; None removes a variable",
            )
    selected = {name: everything[name] for name in names}
    return {**selected, **dict(part.request.user_variables), **(extra or {})}


def _select_names(selection: Selection, everything: Variables, of_identity: Variables) -> Collection[str]:
    if selection == "all":
        return everything
    if selection == "openmp":
        return [name for name in everything if name not in of_identity]
    if isinstance(selection, str):
        hint = "use 'all', 'openmp', or a tuple of names"
        raise RequestError(f"variables={selection!r} is unknown", hint=hint)
    if unknown := sorted(set(selection) - everything.keys()):
        hint = f"give its value: extra={{{unknown[0]!r}: '…'}}"
        raise RequestError(f"variables: ompbind does not set {unknown[0]}", hint=hint)
    missing = set(PLACE_VARIABLES) - set(selection)
    if len(missing) == 1:
        hint = f"name {' and '.join(PLACE_VARIABLES)}: runtimes differ on one without the other"
        raise RequestError(f"variables: {missing.pop()} is missing", hint=hint)
    return selection


def read_compat(
    framework: str,
    env: Mapping[str, str] | None = None,
    *,
    machine: Machine | None = None,
    request: Request | None = None,
) -> dict[str, Any]:
    """Return the fields of a request that the variables of a framework change, as `run --compat` does.

    `framework` is "vllm" or "sglang". `env` is by default os.environ, `machine` is by default this machine.
    A field of `request` that has not its default overrides the variable for the same thing. Raises
    RequestError for an unknown framework, MaskError for a value that is not valid.

    >>> from ompbind import Request, make_plan, read_machine
    >>> machine = read_machine("synthetic:pack:2 core:4 pu:2")
    >>> changes = read_compat("vllm", {"VLLM_CPU_OMP_THREADS_BIND": "0-3|8-11"}, machine=machine)
    >>> print(make_plan(machine, Request(ranks=2, **changes)))
    0: 0-3 | 1: 8-11
    """
    if framework not in FRAMEWORKS:
        raise RequestError(f"unknown framework {framework!r}", hint=f"use {', '.join(FRAMEWORKS)}")
    before = request or Request()
    given = [name for name, default in Request.defaults.items() if getattr(before, name) != default]
    source = FrameworkInput(machine=machine or read_machine(), env=os.environ if env is None else env)
    after = fill_request(before, framework, source, given)
    return {name: value for name, value in after.as_dict().items() if value != getattr(before, name)}


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
        text = f"the plan is not for this machine, but for {plan.machine.source!r}"
        raise RequestError(text, hint="make the plan from read_machine() without a topology source")


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
    # another thread may close an ExitStack; in the same thread 0 is right, even after a fork
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
    policy, why = memory_policy.try_policy(placement.memory)
    if policy is None:
        note = make_unset_note(plan.request.memory, (placement,), why)
        if plan.request.strict:
            raise LaunchError(note.text, hint=f"omit --strict, or --memory {plan.request.memory}")
        warn(note.text)
        return
    ident, saved = threading.get_ident(), memory_policy.read_policy()

    def restore() -> None:
        if threading.get_ident() == ident:
            memory_policy.restore_policy(saved)
        else:
            warn(f"the memory policy {policy} was set by another thread, which keeps it")

    undo.callback(restore)
    memory_policy.set_policy(policy)


_INTERNAL = (__name__.partition(".")[0], "contextlib")


def warn(text: str) -> None:
    """Warn (RuntimeWarning) of the line outside of ompbind and contextlib that led to this call."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - inspect takes long to import
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, level)


@contextmanager
def placed(
    plan: Plan, rank: int, *, run_id: str = "", variables: Selection = "all", extra: Variables | None = None
) -> Iterator[Placement]:
    """Start processes as one rank of a plan: what this `with` block starts has its CPUs and variables.

    Within the block

    - the calling thread has the affinity mask and the memory policy of the rank
    - os.environ has the variables that `make_environment` returns
    - the default start method of multiprocessing is spawn

    `variables` selects the variables: "all", "openmp" (places, binding and thread counts), or names. `extra`
    are further variables, which override the variables of ompbind; the value None removes a variable.

    At the end, also after an exception, all of these are restored. Only variables that ompbind sets and
    `extra` are restored; other changes of os.environ stay. One thread at a time can be in such a block,
    others wait.

    Raises RequestError if the plan has no such rank or is for another machine, or for names that ompbind does
    not set. Raises LaunchError if the affinity mask cannot be set, if the memory policy cannot be set and the
    request is strict, or if the calling thread is in such a block already. Warns (RuntimeWarning) of workers
    that multiprocessing did not spawn, of memory policies that cannot be set, and of an affinity mask that
    cannot be restored.
    """
    hint = "start the worker, leave the block, then enter the next block"
    with one_thread_at_a_time("'with placed(...)' blocks cannot be nested", hint=hint):
        # while no other thread changes os.environ
        changes = make_changes(plan, rank, os.environ, run_id, variables, extra)
        check_machine(plan)
        placement = plan.placements[rank]
        with _spawn_by_default(), ExitStack() as undo:
            set_variables(changes, undo)
            cpus, first = placement.cpuset, find_first_cpu(plan.machine, placement)
            set_own_affinity(cpus if plan.machine.bindable else None, undo, first)
            set_memory_policy(plan, placement, undo)
            yield placement


@contextmanager
def _spawn_by_default() -> Iterator[None]:
    """Make spawn the default start method: a forked worker inherits loaded libraries, sized for all CPUs.

    Warns of running processes that were started in the block with another method.
    """
    import multiprocessing  # noqa: PLC0415 - door: loads multiprocessing
    from multiprocessing import resource_tracker  # noqa: PLC0415 - door: loads multiprocessing

    # The resource tracker runs until the program exits, so it must not inherit the CPUs of the rank.
    resource_tracker.ensure_running()
    before = multiprocessing.get_start_method(allow_none=True)
    known = set(multiprocessing.active_children())
    try:
        multiprocessing.set_start_method("spawn", force=True)
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)
    for worker in set(multiprocessing.active_children()) - known:
        why = ""
        if isinstance(worker, multiprocessing.get_context("forkserver").Process):
            why = "it was started by the fork server, with the CPUs and variables of that process"
        elif isinstance(worker, multiprocessing.get_context("fork").Process):
            why = "it was forked, so libraries that are already loaded keep their number of threads"
        if why:
            warn(f"{worker.name}: {why}; use get_context('spawn')")
