"""Which OpenMP runtimes a rank will have, and how its binding is written so that it holds in each of them.

The reasons are measured. A runtime narrows the *initial thread* of a program to the first place that it is
told, and all that this thread creates later inherits that: other threads, processes, and the CPUs that a
second runtime sees. libomp before LLVM 16 has places only at a price: children that it forks crash.
"""

from collections.abc import Iterator

from ompbind.errors import PlanError
from ompbind.machine.model import Level
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import Bind, Request
from ompbind.programs.library_catalog import KINDS, Library, OmpRuntime, Role
from ompbind.programs.workload import Found, How, Workload
from ompbind.words import Words

FORKS_FROM = 16
"""The version of LLVM from which on children that libomp forks survive it having places."""

RESETS_FROM = 15
"""The version of LLVM from which on libomp knows KMP_AFFINITY=reset."""

CONFLICT = "omp-runtime-conflict"
"""The code of warnings that threads will not be where the binding mode says."""


DECIDING = ("KMP_AFFINITY", "KMP_HW_SUBSET", "KMP_PLACE_THREADS", "OMP_PLACES", "OMP_PROC_BIND")
"""Variables that decide where threads are, beside GOMP_CPU_AFFINITY."""

ESCAPES = {"norespect", "disabled"}
MODIFIERS = {"verbose", "noverbose", "warnings", "nowarnings", "respect", "reset", "noreset"}
"""Words of KMP_AFFINITY with which threads leave the mask, and those that go together with OMP_PLACES."""


class Style(Words):
    """How a binding is written: as OMP_PLACES, as a list in KMP_AFFINITY, or not at all."""

    PLACES = "places"
    LIST = "list"
    UNBOUND = "unbound"


def find_runtimes(request: Request) -> tuple[Library, ...]:
    """Return the OpenMP runtimes to write for, surest first; none where nothing is known of any.

    A family that the request names stands for those of it that were found, or for one of unknown version.
    """
    found = tuple(one.library for one in request.workload.runtimes()) if request.workload else ()
    if request.omp_runtime is None:
        return found
    kind = next(kind for kind in KINDS.values() if kind.family is request.omp_runtime)
    return tuple(one for one in found if one.kind is kind) or (Library(path="", kind=kind),)


def choose_style(request: Request) -> Style:
    """Choose how the binding of a request is written for the runtimes that its ranks will have."""
    if request.bind is Bind.NONE or (request.bind is Bind.RANK and _oldest_llvm(request) < FORKS_FROM):
        return Style.UNBOUND
    return Style.LIST if request.bind is Bind.EXACT and _is_kmp_preloaded(request) else Style.PLACES


def knows_reset(request: Request) -> bool:
    """Tell whether a runtime may be there that can be told to free the initial thread after each region."""
    runtimes = find_runtimes(request)
    sure = [one.library for one in _sure(request) if one.library in runtimes]
    return not runtimes or any(_resets(one) for one in sure or runtimes)


def _sure(request: Request) -> list[Found]:
    """Return the runtimes that will be there, whatever else the command may load."""
    found = request.workload.runtimes() if request.workload else ()
    return [one for one in found if one.how is not How.AVAILABLE]


def _resets(runtime: Library) -> bool:
    if runtime.family is OmpRuntime.LLVM:
        return runtime.version is None or runtime.version >= RESETS_FROM
    return runtime.family is OmpRuntime.INTEL


def _oldest_llvm(request: Request) -> int:
    """Return the version of the oldest libomp that a rank may load, FORKS_FROM when there is no older one."""
    versions = (one.version for one in find_runtimes(request) if one.family is OmpRuntime.LLVM)
    return min((version for version in versions if version is not None), default=FORKS_FROM)


def _is_kmp_preloaded(request: Request) -> bool:
    """Tell whether a runtime is preloaded that reads KMP_AFFINITY, beside which others may be loaded."""
    workload, asked = request.workload, request.omp_runtime
    families = {OmpRuntime.LLVM, OmpRuntime.INTEL} & ({asked} if asked else set(OmpRuntime))
    return workload is not None and workload.has(*families, how=How.PRELOADED)


def check_runtimes(request: Request) -> None:
    """Refuse runtimes that cannot be in one process; raises PlanError."""
    workload = request.workload or Workload()
    llvm, intel, gomp = OmpRuntime.LLVM, OmpRuntime.INTEL, OmpRuntime.GOMP
    if workload.has(gomp, how=How.PRELOADED) and workload.has(llvm, intel, how=How.PRELOADED):
        raise PlanError(
            f"{_named_preloads(workload)} are preloaded together: one takes the other's calls, both bind",
            hint="preload one OpenMP runtime only",
        )
    sure = _sure(request)
    if {llvm, intel} <= {one.library.family for one in sure}:
        told = ", ".join(f"{one.library.kind.label} ({_because(one)})" for one in sure)
        raise PlanError(
            f"libomp and libiomp5 in one process end it (OMP: Error #15): {told}",
            hint="preload neither, or the one that the program needs",
        )


def _named_preloads(workload: Workload) -> str:
    found = (one.library.kind.label for one in workload.runtimes() if one.how is How.PRELOADED)
    return " and ".join(dict.fromkeys(found))


def _because(found: Found) -> str:
    if found.how is How.PRELOADED:
        return "preloaded"
    return f"{found.by} needs it" if found.how is How.NEEDED else f"in {found.by}"


def explain_runtime(plan: Plan) -> list[Note]:
    """Say which runtimes ranks will have, how that is known, what follows from it, and what will not hold."""
    request = plan.request
    kept = [Note(code=CONFLICT, text=text, warning=True) for text in _find_overriding(plan)]
    if request.workload is None and request.omp_runtime is None:
        return kept
    text = f"OpenMP runtime: {_told(request)}; {_consequence(plan)}"
    troubles = request.workload.troubles if request.workload else ()
    return [
        Note(code="omp-runtime", text=text),
        *(Note(code="preload", text=trouble, warning=True) for trouble in troubles),
        *(Note(code=CONFLICT, text=text, warning=True) for text in _find_conflicts(plan)),
        *kept,
        *(Note(code="mkl-dynamic", text=text) for text in _explain_mkl(plan)),
    ]


_NOT_FOUND = "the command, or what it leads to, is not found"


def _told(request: Request) -> str:
    workload = request.workload or Workload()
    if request.omp_runtime is not None:
        return f"{find_runtimes(request)[0].kind.label}, as --omp-runtime says"
    places: dict[str, list[str]] = {}
    for one in workload.runtimes():
        places.setdefault(_labelled(one), []).append(_place(one))
    if places:
        return ", ".join(f"{label} ({' and '.join(where)})" for label, where in places.items())
    if workload.static:
        return f"not known, {workload.program} is linked statically"
    if workload.opaque:
        program = workload.program
        return "not known, " + (f"{program} does not tell what it will run" if program else _NOT_FOUND)
    if workload.python:
        return f"none in the packages of {workload.python}"
    return f"none that {workload.program} needs" if workload.program else "not known without the command"


def _labelled(found: Found) -> str:
    version = found.library.version
    return found.library.kind.label + (f" of LLVM {version}" if version else "")


def _place(found: Found) -> str:
    if found.how is How.AVAILABLE:
        return f"in {found.by}"
    return f"preloaded, {found.library.path}" if found.how is How.PRELOADED else f"{found.by} needs it"


def _consequence(plan: Plan) -> str:
    request = plan.request
    style = choose_style(request)
    if style is not Style.UNBOUND and not any(one.places for one in plan.placements):
        return "no thread is bound, only the process"
    if style is Style.LIST:
        return "KMP_AFFINITY lists the CPUs, since one more runtime would take OMP_PLACES for its own"
    if style is Style.UNBOUND:
        if request.bind is Bind.NONE:
            return "no thread is bound, only the process"
        return "no places, with which a libomp before LLVM 16 crashes the children that it forks"
    if request.bind is Bind.RANK:
        return "one place with all CPUs of the rank suits every runtime"
    if request.bind is Bind.EXACT:
        freed = ", KMP_AFFINITY=reset frees the initial thread after each region"
        alone = ", and all threads of a second runtime that is loaded later are on its first CPU"
        return "a place for each thread" + (freed if knows_reset(request) else "") + alone
    return "workers have places of their own, the initial thread has all CPUs of the rank"


def _find_conflicts(plan: Plan) -> Iterator[str]:
    """Yield what will not hold of the binding that is asked for."""
    request = plan.request
    asked = request.omp_runtime
    if not any(one.places for one in plan.placements):
        return
    sure = _sure(request)
    if asked and sure and all(one.library.family is not asked for one in sure):
        there = f"{sure[0].library.kind.label} will be there ({_because(sure[0])})"
        yield f"--omp-runtime says {asked}, but {there}"
    if _oldest_llvm(request) < FORKS_FROM:
        yield (
            f"libomp of LLVM {_oldest_llvm(request)} crashes children that it forks when it has places, as "
            f"with --bind {request.bind} (--bind rank gives it none)"
        )
    if request.bind is Bind.EXACT and any(len(one.cpus) > 1 for one in plan.placements):
        yield from _find_narrowing(request, request.workload or Workload())


def _find_overriding(plan: Plan) -> Iterator[str]:
    """Yield the user's own variables by which threads would be bound otherwise than the plan says."""
    binds = any(one.places for one in plan.placements)
    for name, value in plan.request.own_variables:
        words = set(value.lower().replace(" ", "").split(","))
        given = f"{name}={value}, which --env or --keep-env gives to ranks,"
        if name == "GOMP_CPU_AFFINITY" or (name == "KMP_AFFINITY" and words & ESCAPES):
            yield f"{given} may take threads out of the CPUs of their rank"
        elif binds and name in DECIDING and not (name == "KMP_AFFINITY" and words <= MODIFIERS):
            yield f"{given} binds threads otherwise than this plan"


def _find_narrowing(request: Request, workload: Workload) -> Iterator[str]:
    """Yield who finds itself on the first CPU of its rank, where each thread is to have a CPU of its own."""
    found = find_runtimes(request)
    first = "on the first CPU of its rank"
    if choose_style(request) is Style.LIST:
        if not knows_reset(request):
            yield f"libomp before LLVM {RESETS_FROM} leaves the initial thread, and all it creates, {first}"
    elif workload.python and found:
        runtime = found[0].kind.label
        yield (
            f"--bind exact leaves the initial thread {first}, and with it all threads, child processes and "
            f"further runtimes that a Python starts once {runtime} is loaded (--bind rank or thread does not)"
        )
    elif len(found) == 1 and (pools := _find_pools(workload)) and not knows_reset(request):
        yield (
            f"--bind exact with {found[0].kind.label} and {pools[0].kind.label}: the threads of the latter "
            f"will be {first} (--bind rank or thread avoids it)"
        )
    elif len(found) > 1:
        yield (
            f"--bind exact with {' and '.join(one.kind.label for one in found)}: all threads of the one that "
            f"starts second will be {first} (--bind rank or thread avoids it)"
        )
    elif not found and workload.opaque:
        who = workload.program or "the command"
        yield (
            f"{who} does not tell what it runs: a Python, or a program with two OpenMP runtimes, would find "
            f"most of its threads {first} by --bind exact (--omp-runtime says that there is one runtime only)"
        )


def _find_pools(workload: Workload) -> list[Library]:
    """Return the libraries with threads of their own that will be there, which is what a BLAS often has."""
    sure = (one.library for one in workload.libraries if one.how is not How.AVAILABLE)
    return [one for one in sure if one.kind.role is Role.BLAS]


def _explain_mkl(plan: Plan) -> Iterator[str]:
    """Tell that MKL, also within torch, has no more threads than the machine has cores, SMT or not."""
    workload = plan.request.workload
    cores = len(plan.machine.at(Level.CORE))
    threads = max(one.threads for one in plan.placements)
    if workload and workload.python and threads > cores:
        yield (
            f"MKL, and torch with it, start no more than {cores} of {threads} threads here, one for each core"
            " (--env MKL_DYNAMIC=FALSE lets them)"
        )
