"""What a plan expects of the threads of a rank, and why threads are not where it expects them.

The causes are measured facts. An OpenMP runtime that binds narrows the initial thread to its first place
(`openmp.binding`): libgomp when it is loaded, other runtimes when they are first used.

    initial thread: CPUs 0-3 --> runtime binds it --> CPU 0
                                                        |--> threads and processes that it creates: CPU 0
                                                        `--> a second runtime in the process sees CPU 0 only

With one place for the whole rank (--bind rank), or with OMP_PROC_BIND=false, no runtime narrows anything.
So the cause is looked for in the mask, the loaded libraries and the environment of each process.

The planned binding can also be *absent* although no mask is wrong:

    --bind thread --> OMP_PLACES={0,1},{1} --> env -u OMP_PLACES ./omp --> all threads allowed on CPUs 0-1

OpenMP threads look like any others. So the evidence is in the variables with which the process was executed,
and in runtimes that bind as soon as they are loaded. A process can change its own variables later (setenv);
that is not visible.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ompbind.commands.rank_command import RankCommand
from ompbind.commands.rank_variables import OMPBIND_CPUS, OMPBIND_RUN_ID, OMPBIND_SERVICE_CPUS, find_rank
from ompbind.cpuset import EMPTY, CpuSet, count, join_words, union
from ompbind.openmp import runtimes
from ompbind.openmp.binding import Bind, parse_places, render_places
from ompbind.openmp.runtimes import KMP_AFFINITY, KMP_READERS, PLACE_VARIABLES, OmpRuntime
from ompbind.openmp.variables import MASK_COUNTS, OVERRIDING_VARIABLES, THREAD_COUNTS
from ompbind.planning.plan import Plan
from ompbind.planning.request import Hold
from ompbind.procfs.process_state import ProcessState
from ompbind.programs import libraries
from ompbind.programs.libraries import Library
from ompbind.record import Record
from ompbind.text import whole_number

_FAMILIES = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS", "BLIS_", "NUMEXPR_", "TBB_", "OMPBIND_", "LD_PRELOAD",
)  # fmt: skip
_KNOWN = {*THREAD_COUNTS, *OVERRIDING_VARIABLES, *(name for name, _ in runtimes.SPIN_SETTINGS)}
"""Variables that decide where threads run and how many there are: prefixes of names, and whole names."""


class ExpectedBinding(Record):
    """What is expected of the threads of one rank; `rank` is None if there is no plan and this is a guess.

    `cpus` are all CPUs of the rank; no OpenMP worker is to run on its `service_cpus`. Processes with another
    run ID than `run_id` belong to a nested run. `memory` is the memory policy as the kernel writes it, "" for
    any. `variables` bind OpenMP threads or set their number: each known one with the value that ompbind gave
    to the rank, None if ompbind removed it. `is_unbound`: the rank has all CPUs that it could have, and
    no mode binds its threads, as with `-m none`: no CPUs are its own. `hold`: its threads
    are held on its CPUs.
    """

    rank: int | None
    cpus: CpuSet
    places: tuple[CpuSet, ...]
    bind: Bind
    run_id: str = ""
    memory: str = ""
    variables: tuple[tuple[str, str | None], ...] = ()
    service_cpus: CpuSet = EMPTY
    is_unbound: bool = False
    hold: Hold | None = None

    @property
    def compute(self) -> CpuSet:
        """The CPUs of the rank without its service CPUs."""
        return self.cpus - self.service_cpus

    @property
    def masks(self) -> frozenset[CpuSet]:
        """The masks that threads of the rank may have: all its CPUs, or one of its places."""
        return frozenset((self.cpus, *self.places))


def is_relevant(name: str) -> bool:
    """Return whether a variable decides where threads run or how many there are."""
    return name.startswith(_FAMILIES) or name.endswith("_NUM_THREADS") or name in _KNOWN


def select_variables(env: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """Return the variables of a rank's environment for `ExpectedBinding.variables`.

    A number of threads that ompbind leaves to libraries may be set by the program, as joblib does.
    """
    names = dict.fromkeys((*PLACE_VARIABLES, *THREAD_COUNTS, *OVERRIDING_VARIABLES))
    return tuple((name, env.get(name)) for name in names if name in env or name not in MASK_COUNTS)


def expect_ranks(
    plan: Plan, run_id: str, commands: Iterable[RankCommand]
) -> dict[int, tuple[ExpectedBinding, int]]:
    """Return the expected binding of the threads of each rank, and their number, by its rank."""
    return {
        placement.rank: (
            ExpectedBinding(
                rank=placement.rank,
                cpus=placement.cpuset,
                service_cpus=placement.service_cpus,
                places=placement.places,
                bind=request.bind,
                hold=request.hold,
                is_unbound=request.effective_bind is Bind.NONE and placement.cpuset == plan.machine.allowed,
                run_id=run_id,
                memory=placement.memory.kernel_text if placement.memory else "",
                variables=select_variables(command.env),
            ),
            placement.threads,
        )
        for placement, request, command in zip(plan.placements, plan.rank_requests, commands, strict=True)
    }


def expect_variables(env: Mapping[str, str]) -> ExpectedBinding | None:
    """Return what is expected of a process by ompbind's variables; None if ompbind has not started it."""
    try:
        rank, compute = find_rank(env), CpuSet.from_list(env[OMPBIND_CPUS])
        service = CpuSet.from_list(env.get(OMPBIND_SERVICE_CPUS, ""))
    except (KeyError, ValueError):
        return None
    if rank is None or not compute:
        return None
    places = parse_places(env.get("OMP_PLACES", "")) or ()
    if "proclist=[" in env.get("KMP_AFFINITY", ""):
        places = tuple(CpuSet((cpu,)) for cpu in compute)
    elif env.get("OMP_PROC_BIND", "false").lower() == "false":
        places = ()
    cpus, run_id, bind = compute | service, env.get(OMPBIND_RUN_ID, ""), Bind.CORE
    if not places:
        bind = Bind.NONE
    elif places[0] != cpus:
        bind = Bind.EXACT
    elif all(place == compute for place in places[1:]):
        bind = Bind.RANK
    elif all(len(place) == 1 for place in places[1:]):
        bind = Bind.THREAD
    return ExpectedBinding(
        rank=rank, cpus=cpus, places=places, bind=bind, run_id=run_id, service_cpus=service
    )


def find_changed(process: ProcessState, expected: ExpectedBinding) -> tuple[str, ...]:
    """Return the variables with which a process with an OpenMP runtime was executed other than planned."""
    if not (find_runtimes(process) and process.is_environment_known):
        return ()
    env = process.env
    return tuple(name for name, value in expected.variables if env.get(name) != value)


def binds(names: Sequence[str], expected: ExpectedBinding) -> bool:
    """Return whether the planned binding is written in one of these variables."""
    planned = dict(expected.variables)
    places = any(planned.get(name) for name in PLACE_VARIABLES)
    return bool(set(names) & (set(PLACE_VARIABLES) if places else {KMP_AFFINITY}))


def is_unbound(process: ProcessState, expected: ExpectedBinding) -> bool:
    """Return whether OpenMP threads of a process are not on places, although the mode of the rank has places.

    All its threads are allowed on all CPUs of the rank, and its variables do not name the planned places; or
    they do, but a runtime that applies them when it is loaded has not. Other runtimes apply them when they
    start their threads. These look like any others: so nothing is missing in a process with fewer threads
    than its runtime starts.
    """
    binds_each = expected.bind not in (Bind.RANK, Bind.NONE)
    has_places = binds_each or any(place != expected.cpus for place in expected.places)
    is_written = not expected.places or render_places(expected.places) is not None  # else it is too long
    loaded, masks = find_runtimes(process), [thread.cpus for thread in process.threads]
    if not (has_places and len(expected.cpus) > 1 and is_written and loaded and process.is_environment_known):
        return False
    if {*masks} != {expected.cpus}:
        return False
    env, own = process.env, expect_variables(process.env)
    if own is None or own.bind is Bind.NONE or set(own.places) != set(expected.places):
        team = whole_number(env.get("OMP_NUM_THREADS", "").partition(",")[0].strip()) or len(expected.compute)
        return 1 < team <= len(masks)
    at_load = any(runtime.family and runtime.family.facts.narrows_at_load for runtime in loaded)
    return at_load and expected.bind is Bind.EXACT and "OMP_PLACES" in env and len(masks) > 1


def explain_changed(process: ProcessState, expected: ExpectedBinding, names: Sequence[str]) -> str:
    """Describe the variables of a process: "executed with A=1 (planned: 2) and without B"."""
    env, planned = process.env, dict(expected.variables)

    def shorten(value: str | None) -> str:
        return "unset" if value is None else value if len(value) <= 60 else f"{value[:57]}..."

    parts = [
        f"with {name}={shorten(env[name])} (planned: {shorten(planned[name])})"
        if name in env
        else f"without {name}"
        for name in names[:3]
    ]
    parts += [count(len(names) - 3, "other changed variable")] if len(names) > 3 else []
    return f"executed {join_words(parts)}"


def is_library(path: str) -> bool:
    """Return whether a file is a known library, by its name."""
    return ".so" in path and libraries.name_library(path) is not None


def find_libraries(process: ProcessState) -> tuple[Library, ...]:
    """Return the OpenMP runtimes, BLAS libraries and allocators that a process has loaded, each file once."""
    return libraries.name_libraries(process.files)


def find_runtimes(process: ProcessState) -> tuple[Library, ...]:
    """Return the OpenMP runtimes that a process has loaded."""
    return tuple(library for library in find_libraries(process) if library.family)


def advise_waiting(processes: Iterable[ProcessState]) -> str:
    """Return what may help ranks whose threads compete for CPUs; "" if their waiting threads cannot spin."""
    several = (each for each in processes if len(each.threads) > 1 and find_rank(each.env) is not None)
    may_spin = (find_runtimes(each) and not {*runtimes.WAIT_VARIABLES} & each.env.keys() for each in several)
    return f"; {runtimes.TRY_PASSIVE}" if any(may_spin) else ""


def has_runtime(process: ProcessState, *families: OmpRuntime) -> bool:
    """Return whether a process has loaded an OpenMP runtime of one of these families."""
    return any(runtime.family in families for runtime in find_runtimes(process))


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
    if runtimes.NO_RESPECT in kmp and has_runtime(process, *KMP_READERS):
        return f"KMP_AFFINITY={kmp} makes an OpenMP runtime ignore the process's affinity mask"
    if has_onnxruntime(process):
        return _BY_ONNXRUNTIME
    changed = f", or the cpuset of {cpuset} was changed" if cpuset else ""
    changed = f"the program or another process changed the mask (sched_setaffinity, taskset, rebind){changed}"
    return f"{changed}{_unreadable(process)}"


_BY_ONNXRUNTIME = f"probably by ONNX Runtime: {libraries.ONNXRUNTIME_BINDS}; {libraries.ONNXRUNTIME_REMEDY}"


def has_onnxruntime(process: ProcessState) -> bool:
    """Return whether a process has loaded ONNX Runtime, which then has probably bound threads."""
    return any(library.kind.name == libraries.ONNXRUNTIME for library in find_libraries(process))


def _find_list_variable(process: ProcessState) -> str:
    """Return the variable other than OpenMP's own ones with which a runtime binds threads; "" if none."""
    env, reads_kmp = process.env, has_runtime(process, *KMP_READERS)
    applied: list[str] = []
    if reads_kmp:
        kmp = env.get(KMP_AFFINITY, "")
        applied += [KMP_AFFINITY] if any(word in kmp for word in runtimes.KMP_BINDS) else []
        applied += [name for name in runtimes.SUBSET_VARIABLES if env.get(name)]
    # In libgomp the standard variables of OpenMP have precedence over its own.
    if find_runtimes(process) and (reads_kmp or not env.keys() & PLACE_VARIABLES):
        applied += [name for name in runtimes.CPU_LIST_VARIABLES if name in env]
    return f"{applied[0]}={env[applied[0]]}" if applied else ""


def explain_narrowing(process: ProcessState, masks: Sequence[CpuSet]) -> str:
    """Return which variables make an OpenMP runtime narrow threads to these masks; "" if none do."""
    if listed := _find_list_variable(process):
        return f"an OpenMP runtime applies {listed}"
    if not _binds_to(process, masks):
        return ""
    variables, runtime = render_place_variables(process), _name_runtime(process)
    if process.initial_thread and process.initial_thread.cpus in masks:
        bound = f"{runtime} bound the initial thread to the first place"
        return f"with {variables}, {bound}, and new threads and processes inherit its mask"
    return f"{runtime} bound its own threads to places ({variables})"


def explain_later_binding(process: ProcessState, right: Collection[CpuSet]) -> str:
    """Return with which variables a runtime binds threads that it starts later to other masks; "" if none.

    `right` are the masks that threads should have.
    """
    places = parse_places(process.env.get("OMP_PLACES", "")) or ()
    if places and all(place in right for place in places):
        return ""
    applied = _find_list_variable(process)
    if not applied and find_runtimes(process) and _binds_to(process, places):
        applied = render_place_variables(process)
    if applied:
        return f"{_name_runtime(process)} applies {applied} again to threads and programs that start later"
    if process.is_environment_known or not find_runtimes(process):
        return ""
    return f"{_name_runtime(process)} may bind new threads again{_unreadable(process)}"


def render_place_variables(process: ProcessState) -> str:
    """Return the variables with the places of a process, as NAME=VALUE words."""
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
    return bool(find_runtimes(process)) if places is None else any(mask in places for mask in masks)


def name_runtimes(process: ProcessState) -> list[str]:
    """Return the names of the OpenMP runtimes that a process has loaded, each once."""
    return list(dict.fromkeys(runtime.kind.label for runtime in find_runtimes(process)))


def _name_runtime(process: ProcessState) -> str:
    names = name_runtimes(process)
    return names[0] if len(names) == 1 else "an OpenMP runtime"


def list_ancestors(process: ProcessState, by_pid: Mapping[int, ProcessState]) -> Iterator[ProcessState]:
    """Yield the parent of a process, its parent and so on, as far as they are known, each once."""
    visited = {process.pid}
    while (parent := by_pid.get(process.parent)) and parent.pid not in visited:
        visited.add(parent.pid)
        yield (process := parent)


def explain_inheriting(process: ProcessState, masks: Sequence[CpuSet], group: Sequence[ProcessState]) -> str:
    """Return from which ancestor in the group a process inherited its masks; "" if from none.

    The ancestor must have exactly this mask on its initial thread, set by an OpenMP runtime.
    """
    for parent in list_ancestors(process, {member.pid: member for member in group}):
        initial = parent.initial_thread
        if initial and set(masks) == {initial.cpus} and explain_narrowing(parent, masks):
            thread = f"whose initial thread {_name_runtime(parent)} bound to a place"
            return f"inherited from {parent.name}, {thread}"
    return ""


def explain_without_variable(process: ProcessState, masks: Sequence[CpuSet]) -> str:
    """Return who narrowed threads, if no variable makes an OpenMP runtime do it."""
    if len(masks) == len(process.threads) and len(set(masks)) == 1:
        who, how = "the process or its parent", "sched_setaffinity, taskset, rebind"
        if find_runtimes(process) and not process.is_environment_known:
            who, how = f"{_name_runtime(process)}, {who}", f"OMP_PROC_BIND, {how}"
        return f"{who} set this mask ({how}){_unreadable(process)}"
    if has_onnxruntime(process):
        return _BY_ONNXRUNTIME
    by_runtime = ", or an OpenMP runtime that the program configured after its start, set this"
    return f"the program{by_runtime if find_runtimes(process) else ' set this itself'}{_unreadable(process)}"


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
        alone = (
            f"with OMP_PROC_BIND={bind} alone, {_name_runtime(process)} binds each thread to one CPU or core"
        )
        return f"the command removed OMP_PLACES; {alone}"
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
