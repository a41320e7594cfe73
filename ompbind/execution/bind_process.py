"""Bind the process that calls this, with all its threads, as one rank of a plan.

This is for processes that another program starts: actors, workers of pools, forked workers. `placed` is
better where it is possible, because a process that is bound from its start loads all libraries with the
variables of its rank.
"""

import os
import sys
from contextlib import ExitStack

from ompbind.errors import LaunchError
from ompbind.execution.environment import Selection, VariableChoice, make_changes
from ompbind.execution.process_settings import (
    check_machine,
    one_thread_at_a_time,
    set_memory_policy,
    set_variables,
)
from ompbind.execution.thread_masks import bind_threads
from ompbind.inspection.absent_binding import read_own_runtimes
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_variables import Variables
from ompbind.programs.library_catalog import Library
from ompbind.record import Record


class ProcessBinding(Record):
    """What `bind_process` has bound; `runtimes` are the OpenMP runtimes that were loaded before.

    These runtimes may have read their variables before: their numbers of threads and places then stay.
    """

    placement: Placement
    runtimes: tuple[Library, ...]


_FIXED_BY_MODULES = {"NUMBA_NUM_THREADS": "numba"}
"""Variables that stay as they are if a module is imported.

Numba reads its variable at each compilation. After its threads have started, another value is an error.
Without the variable, Numba counts the CPUs of the affinity mask.
"""

_undo: ExitStack | None = None
"""Restores the settings from before `bind_process`; None while the process is not bound."""


def _forget_binding() -> None:
    """Forget the binding in a forked child, which stays bound: its threads are others, it may bind itself."""
    global _undo
    _undo = None


os.register_at_fork(after_in_child=_forget_binding)


def bind_process(
    plan: Plan,
    rank: int,
    *,
    run_id: str = "",
    variables: Selection = "all",
    extra: Variables | None = None,
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
    choice = VariableChoice(run_id=run_id, variables=variables, extra=extra)
    with one_thread_at_a_time(
        "bind_process cannot be called inside 'with placed(...)'", hint="leave the block first"
    ):
        # while no other thread changes os.environ
        changes = _drop_fixed(make_changes(plan, rank, choice, os.environ), extra or {})
        check_machine(plan)
        placement = plan.placements[rank]
        if _undo is not None:
            raise LaunchError("bind_process has bound this process already", hint="call unbind() first")
        runtimes = read_own_runtimes()
        _check_region(runtimes)
        with ExitStack() as undo:
            set_variables(changes, undo)
            bind_threads(placement.cpuset if plan.machine.bindable else None, undo)
            set_memory_policy(plan, placement, undo)
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
    with one_thread_at_a_time(
        "unbind cannot be called inside 'with placed(...)'", hint="leave the block first"
    ):
        if _undo is None:
            raise LaunchError("this process is not bound by bind_process", hint="call bind_process first")
        undo, _undo = _undo, None
        undo.close()


def _drop_fixed(changes: Variables, extra: Variables) -> Variables:
    """Return the changes without variables that an imported module fixes; `extra` is always set."""
    fixed = {name for name, module in _FIXED_BY_MODULES.items() if module in sys.modules}
    return {name: value for name, value in changes.items() if name in extra or name not in fixed}


def _check_region(runtimes: tuple[Library, ...]) -> None:
    """Raise LaunchError if a loaded runtime runs the caller in a parallel region."""
    for runtime in runtimes:
        if _is_in_region(runtime):
            raise LaunchError(
                f"bind_process is called in a parallel region of {runtime.kind.label}",
                hint="call bind_process before or after the region",
            )


def _is_in_region(runtime: Library) -> bool:
    """Return whether the caller is in a parallel region of a loaded runtime; False if that is unknown."""
    if runtime.family is None:
        return False
    try:
        import ctypes  # noqa: PLC0415 - door: loads libffi

        library = ctypes.CDLL(runtime.path, mode=os.RTLD_NOLOAD)
        return bool(getattr(library, runtime.family.facts.region_function)())
    except (ImportError, OSError, AttributeError):
        return False  # no ctypes; the file was replaced; a library without this function
