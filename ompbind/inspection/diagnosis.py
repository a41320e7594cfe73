"""Why threads are not where a plan has them, as far as masks, libraries and variables of a process tell.

The causes are measured: an OpenMP runtime narrows the thread that begins with it to its first place (libgomp
when it is loaded, the others when they are first used), and all that this thread makes inherits that; a
second runtime in the process then sees that one place only. With one place for the whole rank, or with
OMP_PROC_BIND=false, none narrows anything.
"""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.inspection.expectation import Expected
from ompbind.inspection.processes import find_runtimes, has_runtime
from ompbind.openmp.binding import Bind
from ompbind.openmp.places import parse_places
from ompbind.openmp.runtimes import (
    CPU_LISTS,
    KMP_AFFINITY,
    KMP_BINDS,
    KMP_READERS,
    NO_RESPECT,
    STANDARD,
    SUBSETS,
    OmpRuntime,
)
from ompbind.procfs.process_state import ProcessState


def explain_escape(process: ProcessState) -> str:
    """Say what lets threads leave the CPUs of their rank."""
    env = process.env
    for one in OmpRuntime:
        name = one.facts.cpu_list
        if name in env and has_runtime(process, one) and not env.keys() & STANDARD:
            return f"{one.label} obeys {name}={env[name]}, whatever the process itself may use"
    kmp = env.get(KMP_AFFINITY, "")
    if NO_RESPECT in kmp and has_runtime(process, *KMP_READERS):
        return f"KMP_AFFINITY={kmp} tells an OpenMP runtime not to respect what the process may use"
    changed = "the program, or somebody else, changed that (sched_setaffinity, as taskset does)"
    return f"{changed}{_blind(process)}"


def explain_narrowing(process: ProcessState, masks: Sequence[CpuSet]) -> str:
    """Say which variables let an OpenMP runtime of a process narrow threads to these masks; "" if none."""
    return next(_explain(process, masks), "")


def _explain(process: ProcessState, masks: Sequence[CpuSet]) -> Iterator[str]:
    env = process.env
    obeyed = "an OpenMP runtime obeys {}={} of the process"
    if has_runtime(process, *KMP_READERS):
        kmp = env.get(KMP_AFFINITY, "")
        if any(word in kmp for word in KMP_BINDS):
            yield obeyed.format(KMP_AFFINITY, kmp)
        yield from (obeyed.format(name, env[name]) for name in SUBSETS if env.get(name))
    # In libgomp the variables of OpenMP win over its own.
    only_gomp_is_told_else = not has_runtime(process, *KMP_READERS) and bool(env.keys() & STANDARD)
    if find_runtimes(process) and not only_gomp_is_told_else:
        yield from (obeyed.format(name, env[name]) for name in CPU_LISTS if name in env)
    if _binds(process, masks):
        told = " ".join(f"{name}={env[name]}" for name in STANDARD if name in env)
        if process.main and process.main.cpus in masks:
            bound = f"{_runtime(process)} bound the initial thread to its first place"
            yield f"{bound}, and what it starts inherits that ({told})"
        else:
            yield f"{_runtime(process)} bound its own threads to places ({told})"


def _binds(process: ProcessState, masks: Sequence[CpuSet]) -> bool:
    """Tell whether OMP_PLACES and OMP_PROC_BIND make a runtime bind threads to such masks.

    Where places are named in words, or not at all, a runtime must be seen; one that is built into the
    program is not, but only it would make masks of just these places.
    """
    env = process.env
    if not env.keys() & STANDARD or env.get("OMP_PROC_BIND", "").lower() == "false":
        return False
    places = parse_places(env.get("OMP_PLACES", ""))
    if places is None:
        return bool(find_runtimes(process))
    return any(mask in places for mask in masks)


def _runtime(process: ProcessState) -> str:
    names = list(dict.fromkeys(one.kind.label for one in find_runtimes(process)))
    return names[0] if len(names) == 1 else "an OpenMP runtime"


def explain_inheriting(process: ProcessState, masks: Sequence[CpuSet], kin: Sequence[ProcessState]) -> str:
    """Say from which other process, whose initial thread a runtime narrowed, masks come; "" if from none."""
    by_pid = {one.pid: one for one in kin}
    parent, seen = by_pid.get(process.parent), {process.pid}
    while parent and parent.pid not in seen:
        seen.add(parent.pid)
        main = parent.main
        if main and set(masks) == {main.cpus} and explain_narrowing(parent, [main.cpus]):
            return f"inherited from {parent.name}, whose initial thread {_runtime(parent)} had bound"
        parent = by_pid.get(parent.parent)
    return ""


def explain_own(process: ProcessState, masks: Sequence[CpuSet]) -> str:
    """Say who narrowed threads where no variable tells an OpenMP runtime to."""
    if len(masks) == len(process.threads) and len(set(masks)) == 1:
        return f"the process has confined itself, or what started it has, as taskset does{_blind(process)}"
    if find_runtimes(process):
        return f"the program did, or an OpenMP runtime that it told to once it ran{_blind(process)}"
    return f"the program did that itself{_blind(process)}"


def _blind(process: ProcessState) -> str:
    return "; its environment may not be read" if "environment" in process.unread else ""


def advise(plan: Expected) -> str:
    """Say what would leave threads alone, after what narrowed them."""
    if plan.rank is not None and plan.bind in (Bind.RANK, Bind.NONE):
        return "these variables are not of ompbind: the command sets them, or --env or --keep-env does"
    if plan.rank is not None and plan.bind is Bind.EXACT:
        return "use --bind thread, or --bind rank"
    return "use --bind rank"


def guess_expected(processes: Sequence[ProcessState], around: CpuSet = EMPTY) -> Expected:
    """Return what to expect of processes of which no plan is known: that all may use all CPUs of all.

    Masks that are parts of these, and places that a process was told, are taken for places, and the mode
    for "exact"; without any it is "none". `around` is what their parent may use: where an OpenMP runtime
    has narrowed whole processes, they could have had that.
    """
    masks = {thread.cpus for process in processes for thread in process.threads}
    told = [place for one in processes for place in _told_places(one, masks)]
    cpus = union([*masks, *told])
    if len(cpus) == 1 and any(_is_put_first(one, masks) for one in processes):
        cpus |= around
    parts = sorted(masks - {cpus}, key=lambda mask: (mask.bits & -mask.bits, mask.bits))
    places = tuple(place for place in dict.fromkeys([*told, *parts]) if place != cpus) if parts else ()
    return Expected(rank=None, cpus=cpus, places=places, bind=Bind.EXACT if places else Bind.NONE)


def _is_put_first(process: ProcessState, masks: set[CpuSet]) -> bool:
    """Tell whether a runtime chose the only CPU of a process: no single place, made for it, names it."""
    places = parse_places(process.env.get("OMP_PLACES", "")) or ()
    return len(places) != 1 and bool(explain_narrowing(process, list(masks)))


def _told_places(process: ProcessState, masks: set[CpuSet]) -> tuple[CpuSet, ...]:
    """Return the places that a process was told, if its threads have some of them."""
    places = parse_places(process.env.get("OMP_PLACES", "")) or ()
    return places if explain_narrowing(process, list(masks)) and masks & set(places) else ()
