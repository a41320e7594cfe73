"""Explain why threads are not where the plan expects them.

The causes are measured facts. An OpenMP runtime that binds narrows the initial thread to its first place:
libgomp when it is loaded, other runtimes when they are first used.

    initial thread: CPUs 0-3 --> runtime binds it --> CPU 0
                                                        |--> threads and processes that it creates: CPU 0
                                                        `--> a second runtime in the process sees CPU 0 only

With one place for the whole rank (--bind rank), or with OMP_PROC_BIND=false, no runtime narrows anything.
So the cause is looked for in the mask, the loaded libraries and the environment of each process.
"""

from collections.abc import Collection, Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.inspection.absent_binding import find_libraries, find_runtimes, has_runtime
from ompbind.inspection.expectation import ExpectedBinding
from ompbind.openmp.binding import Bind, parse_places
from ompbind.openmp.runtimes import (
    CPU_LIST_VARIABLES,
    KMP_AFFINITY,
    KMP_BINDS,
    KMP_READERS,
    NO_RESPECT,
    PLACE_VARIABLES,
    SUBSET_VARIABLES,
    OmpRuntime,
)
from ompbind.procfs.process_state import ProcessState
from ompbind.programs.libraries import ONNXRUNTIME, ONNXRUNTIME_BINDS, ONNXRUNTIME_REMEDY

OVERWRITTEN = ": the process title is written over it"
"""Why an environment is not readable, after these words."""


def explain_escape(process: ProcessState, cpuset: str = "") -> str:
    """Return why threads are allowed on CPUs outside their rank's.

    `cpuset` is the directory of the cpuset if all of them have exactly its CPUs, else "".
    """
    env = process.env
    for runtime in OmpRuntime:
        name = runtime.facts.cpu_list_variable
        if name in env and has_runtime(process, runtime) and not env.keys() & PLACE_VARIABLES:
            return f"{runtime.label} applies {name}={env[name]} even outside the process's affinity mask"
    kmp = env.get(KMP_AFFINITY, "")
    if NO_RESPECT in kmp and has_runtime(process, *KMP_READERS):
        return f"KMP_AFFINITY={kmp} makes an OpenMP runtime ignore the process's affinity mask"
    changed = "the program or another process changed the mask (sched_setaffinity, taskset)"
    changed += f", or the cpuset of {cpuset} was changed" if cpuset else ""
    return _explain_onnxruntime(process) or f"{changed}{_unreadable(process)}"


def _explain_onnxruntime(process: ProcessState) -> str:
    """Return why ONNX Runtime has probably bound threads; "" if a process has not loaded it."""
    if all(library.kind.name != ONNXRUNTIME for library in find_libraries(process)):
        return ""
    return f"probably by ONNX Runtime: {ONNXRUNTIME_BINDS}; {ONNXRUNTIME_REMEDY}"


def _find_list_variable(process: ProcessState) -> str:
    """Return the variable other than OpenMP's own ones with which a runtime binds threads; "" if none."""
    env, reads_kmp = process.env, has_runtime(process, *KMP_READERS)
    applied: list[str] = []
    if reads_kmp:
        kmp = env.get(KMP_AFFINITY, "")
        applied += [KMP_AFFINITY] if any(word in kmp for word in KMP_BINDS) else []
        applied += [name for name in SUBSET_VARIABLES if env.get(name)]
    # In libgomp the standard variables of OpenMP have precedence over its own.
    if find_runtimes(process) and (reads_kmp or not env.keys() & PLACE_VARIABLES):
        applied += [name for name in CPU_LIST_VARIABLES if name in env]
    return f"{applied[0]}={env[applied[0]]}" if applied else ""


def explain_narrowing(process: ProcessState, masks: Sequence[CpuSet]) -> str:
    """Return which variables make an OpenMP runtime narrow threads to these masks; "" if none do."""
    if listed := _find_list_variable(process):
        return f"an OpenMP runtime applies {listed}"
    if not _binds_to(process, masks):
        return ""
    variables = _render_places(process)
    if process.initial_thread and process.initial_thread.cpus in masks:
        bound = f"{_name_runtime(process)} bound the initial thread to the first place"
        return f"with {variables}, {bound}, and new threads and processes inherit its mask"
    return f"{_name_runtime(process)} bound its own threads to places ({variables})"


def explain_later_binding(process: ProcessState, right: Collection[CpuSet]) -> str:
    """Return with which variables a runtime binds threads that it starts later to other masks; "" if none.

    `right` are the masks that threads should have.
    """
    places = parse_places(process.env.get("OMP_PLACES", "")) or ()
    if places and all(place in right for place in places):
        return ""
    applied = _find_list_variable(process)
    if not applied and find_runtimes(process) and _binds_to(process, places):
        applied = _render_places(process)
    if applied:
        return f"{_name_runtime(process)} applies {applied} again to threads and programs that start later"
    if process.is_environment_known or not find_runtimes(process):
        return ""
    return f"{_name_runtime(process)} may bind new threads again{_unreadable(process)}"


def _render_places(process: ProcessState) -> str:
    env = process.env
    return " ".join(f"{name}={env[name]}" for name in PLACE_VARIABLES if name in env)


def _binds_to(process: ProcessState, masks: Sequence[CpuSet]) -> bool:
    """Return whether OMP_PLACES and OMP_PROC_BIND make a runtime bind threads to such masks.

    If OMP_PLACES has no explicit list of places, a runtime must be among the loaded libraries. A statically
    linked runtime is not; then a mask must be equal to one of the explicit places.
    """
    env = process.env
    if not env.keys() & PLACE_VARIABLES or env.get("OMP_PROC_BIND", "").lower() == "false":
        return False
    places = parse_places(env.get("OMP_PLACES", ""))
    if places is None:
        return bool(find_runtimes(process))
    return any(mask in places for mask in masks)


def _name_runtime(process: ProcessState) -> str:
    names = list(dict.fromkeys(runtime.kind.label for runtime in find_runtimes(process)))
    return names[0] if len(names) == 1 else "an OpenMP runtime"


def explain_inheriting(process: ProcessState, masks: Sequence[CpuSet], group: Sequence[ProcessState]) -> str:
    """Return from which ancestor in the group a process inherited its masks; "" if from none.

    The ancestor must have exactly this mask on its initial thread, set by an OpenMP runtime.
    """
    by_pid = {member.pid: member for member in group}
    parent, visited = by_pid.get(process.parent), {process.pid}
    while parent and parent.pid not in visited:
        visited.add(parent.pid)
        initial_thread = parent.initial_thread
        has_masks = initial_thread and set(masks) == {initial_thread.cpus}
        if has_masks and explain_narrowing(parent, masks):
            runtime = _name_runtime(parent)
            return f"inherited from {parent.name}, whose initial thread {runtime} bound to a place"
        parent = by_pid.get(parent.parent)
    return ""


def explain_without_variable(process: ProcessState, masks: Sequence[CpuSet]) -> str:
    """Return who narrowed threads, if no variable makes an OpenMP runtime do it."""
    if len(masks) == len(process.threads) and len(set(masks)) == 1:
        who, how = "the process or its parent", "sched_setaffinity, taskset"
        if find_runtimes(process) and not process.is_environment_known:
            who, how = f"{_name_runtime(process)}, {who}", f"OMP_PROC_BIND, {how}"
        return f"{who} set this mask ({how}){_unreadable(process)}"
    if cause := _explain_onnxruntime(process):
        return cause
    if find_runtimes(process):
        who = "the program, or an OpenMP runtime that the program configured after its start,"
        return f"{who} set this{_unreadable(process)}"
    return f"the program set this itself{_unreadable(process)}"


def _unreadable(process: ProcessState) -> str:
    if process.is_environment_known:
        return ""
    return f"; its environment is not readable{OVERWRITTEN if process.is_environment_overwritten else ''}"


def explain_remedy(process: ProcessState, expected: ExpectedBinding) -> str:
    """Return how to avoid that an OpenMP runtime narrows threads of a process."""
    if expected.rank is None:
        return "use --bind rank"
    # If the planned variables are not known, --bind rank sets both.
    in_rank_mode = {"OMP_PLACES": "{}", "OMP_PROC_BIND": "close" if expected.service_cpus else "true"}
    planned = {**(in_rank_mode if expected.bind is Bind.RANK else {}), **dict(expected.variables)}
    bind = process.env.get("OMP_PROC_BIND")
    is_missing = process.is_environment_known and "OMP_PLACES" not in process.env
    if is_missing and planned.get("OMP_PLACES") and bind is not None and bind == planned.get("OMP_PROC_BIND"):
        alone = f"with OMP_PROC_BIND={bind} alone"
        binds = f"{_name_runtime(process)} binds each thread to one CPU or core"
        return f"the command removed OMP_PLACES; {alone}, {binds}"
    if expected.bind in (Bind.RANK, Bind.NONE):
        return "ompbind did not set these variables, they come from the command, --env or --keep-env"
    return "use --bind thread or --bind rank" if expected.bind is Bind.EXACT else "use --bind rank"


def guess_expected(processes: Sequence[ProcessState], allowed: CpuSet = EMPTY) -> ExpectedBinding:
    """Return what to expect of processes without a plan: each thread is allowed on all their CPUs.

    If threads have smaller masks, or a runtime has applied places, these count as places and the mode is
    "exact"; otherwise the mode is "none". If an OpenMP runtime has narrowed a whole process to one CPU, all
    CPUs that it could use, `allowed`, are expected.
    """
    masks = {thread.cpus for process in processes for thread in process.threads}
    applied: list[CpuSet] = []
    is_chosen = False  # by a runtime, other than as a single explicit place
    for process in processes:
        if explain_narrowing(process, list(masks)):
            explicit = parse_places(process.env.get("OMP_PLACES", "")) or ()
            is_chosen = is_chosen or len(explicit) != 1
            applied += explicit if masks & set(explicit) else ()
    cpus = union([*masks, *applied])
    if len(cpus) == 1 and is_chosen:
        cpus |= allowed
    parts = sorted(masks - {cpus}, key=lambda mask: (mask.bits & -mask.bits, mask.bits))
    places = tuple(place for place in dict.fromkeys([*applied, *parts]) if place != cpus) if parts else ()
    return ExpectedBinding(rank=None, cpus=cpus, places=places, bind=Bind.EXACT if places else Bind.NONE)
