"""Workers: processes that a Python program starts itself, each with the CPUs and variables of one rank.

A process inherits the affinity mask and the memory policy of the thread that starts it, and the environment
of the program. `placed` sets all three for a `with` block as a rank has them, and restores them afterwards.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ompbind.planning.plan import Placement, Plan, find_first_cpu
from ompbind.planning.rank_variables import Variables
from ompbind.workers.environment import Selection, make_changes
from ompbind.workers.process_settings import (
    check_machine,
    one_thread_at_a_time,
    set_memory_policy,
    set_own_affinity,
    set_variables,
    warn,
)


@contextmanager
def placed(
    plan: Plan,
    rank: int,
    *,
    run_id: str = "",
    variables: Selection = "all",
    extra: Variables | None = None,
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
    with one_thread_at_a_time(
        "'with placed(...)' blocks cannot be nested",
        hint="start the worker, leave the block, then enter the next block",
    ):
        # while no other thread changes os.environ
        changes = make_changes(plan, rank, os.environ, run_id=run_id, variables=variables, extra=extra)
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
    """Make spawn the default start method: a forked worker inherits loaded libraries, sized for all CPUs."""
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
    _warn_of_unspawned(set(multiprocessing.active_children()) - known)


def _warn_of_unspawned(workers: set[Any]) -> None:
    """Warn of running processes that were started with another start method than spawn."""
    from multiprocessing import get_context  # noqa: PLC0415 - door: loads multiprocessing

    for worker in workers:
        if isinstance(worker, get_context("forkserver").Process):
            why = "it was started by the fork server, with the CPUs and variables of that process"
        elif isinstance(worker, get_context("fork").Process):
            why = "it was forked, so libraries that are already loaded keep their number of threads"
        else:
            continue
        warn(f"{worker.name}: {why}; use get_context('spawn')")
