"""Notes on OpenMP runtimes: which ones ranks load, how this was found, and which bindings will not hold."""

from collections.abc import Iterator

from ompbind.machine.model import Level
from ompbind.openmp.binding import Bind, BindingSyntax, ProcBind
from ompbind.openmp.runtimes import (
    CPU_LIST_VARIABLES,
    DISABLED,
    KMP_AFFINITY,
    KMP_MODIFIERS,
    KMP_READERS,
    NO_RESPECT,
    PLACE_VARIABLES,
    SUBSET_VARIABLES,
)
from ompbind.openmp.variables import split_words
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import Request
from ompbind.planning.runtimes import (
    choose_syntax,
    explain_detection,
    find_certain_runtimes,
    find_fork_unsafe,
    find_runtimes,
    may_support_reset,
)
from ompbind.programs.library_catalog import LibraryRole
from ompbind.programs.workload import DetectionMethod, Workload

CONFLICT = "omp-runtime-conflict"
"""The code of warnings that threads will not run where the binding mode requests."""


def explain_runtime(plan: Plan) -> Iterator[Note]:
    """Yield notes on the OpenMP runtimes of ranks, and warnings on bindings that will not hold."""
    request = plan.request
    known = request.workload is not None or request.omp_runtime is not None
    if known:
        text = f"OpenMP runtime: {_render_runtimes(request)}; {_render_binding(plan)}"
        yield Note(code="omp-runtime", text=text)
    for text in request.workload.preload_warnings if request.workload else ():
        yield Note(code="preload", text=text, warning=True)
    for text in (*(_find_conflicts(plan) if known else ()), *find_overriding(plan)):
        yield Note(code=CONFLICT, text=text, warning=True)
    workload, cores = request.workload, len(plan.machine.at(Level.CORE))
    threads = max(placement.threads for placement in plan.placements)
    if workload and workload.python and threads > cores:
        text = f"MKL (also within torch) will start at most {cores} of {threads} threads, one per core"
        yield Note(code="mkl-dynamic", text=f"{text} (--env MKL_DYNAMIC=FALSE allows all)")


def _render_runtimes(request: Request) -> str:
    """Return the runtimes, and for each how it was found; or why none is known."""
    workload = request.workload or Workload()
    if request.omp_runtime is not None:
        return f"{find_runtimes(request)[0].kind.label} (--omp-runtime)"
    sources: dict[str, list[str]] = {}
    for detected in workload.runtimes():
        library, family = detected.library, detected.library.family
        version = f" of {family.render_version(library.version)}" if library.version and family else ""
        path = f", {library.path}" if detected.method is DetectionMethod.PRELOADED else ""
        sources.setdefault(f"{library.kind.label}{version}", []).append(explain_detection(detected) + path)
    if sources:
        return ", ".join(f"{label} ({' and '.join(found)})" for label, found in sources.items())
    if workload.static:
        return f"unknown ({workload.program} is statically linked)"
    if workload.opaque and not workload.program:
        return "unknown (the command, or the program that it runs, was not found)"
    if workload.opaque:
        runs = f"the command runs {workload.program}"
        return f"unknown ({runs}; ompbind cannot see what that program starts)"
    if workload.python:
        return f"none found in the packages of {workload.python}"
    return f"none found in {workload.program}" if workload.program else "unknown without a command"


def _render_binding(plan: Plan) -> str:
    """Return how OpenMP threads are bound, and why they are bound in this way."""
    request = plan.request
    syntax = choose_syntax(request)
    if syntax is not BindingSyntax.UNBOUND and not plan.has_places:
        return "only the process is bound, not its threads"
    if syntax is BindingSyntax.LIST:
        return "KMP_AFFINITY lists the CPUs, because a second runtime would read OMP_PLACES too"
    if syntax is BindingSyntax.UNBOUND:
        fork_unsafe = find_fork_unsafe(request)
        if request.bind is Bind.NONE or fork_unsafe is None:
            return "only the process is bound, not its threads"
        runtime, _ = fork_unsafe
        versions = runtime.render_versions_before(runtime.facts.forks_safely_from)
        return f"no places, because with places forked children crash in {versions}"
    if request.bind is Bind.RANK and any(placement.places[1:] for placement in plan.placements):
        return "the first place has all CPUs of the rank, the places of workers have no service CPUs"
    if request.bind is Bind.RANK:
        return "so each rank has one place with all its CPUs, which works with every runtime"
    if request.bind is Bind.EXACT:
        return render_exact_binding(request)
    return "each worker thread has its own place, the initial thread has all CPUs of the rank"


def _find_conflicts(plan: Plan) -> Iterator[str]:
    """Yield a warning for each part of the requested binding that will not hold."""
    request = plan.request
    requested = request.omp_runtime
    if not plan.has_places:
        return
    certain = find_certain_runtimes(request)
    if requested and certain and all(detected.library.family is not requested for detected in certain):
        label, reason = certain[0].library.kind.label, explain_detection(certain[0])
        yield f"--omp-runtime is {requested}, but {label} will be loaded ({reason})"
    if fork_unsafe := find_fork_unsafe(request):
        runtime, version = fork_unsafe
        yield (
            f"forked children will crash in {runtime.label} of {runtime.render_version(version)}, because "
            f"--bind {request.bind} sets places (--bind rank sets none)"
        )
    if request.proc_bind is not ProcBind.CLOSE and choose_syntax(request) is BindingSyntax.LIST:
        yield f"--proc-bind {request.proc_bind} has no effect: KMP_AFFINITY lists the CPUs in thread order"
    if request.bind is Bind.EXACT and any(len(placement.cpus) > 1 for placement in plan.placements):
        yield from find_narrowing(request, request.workload or Workload())


def render_exact_binding(request: Request) -> str:
    """Return how OpenMP threads are bound with --bind exact."""
    text = "each thread gets its own place"
    if _may_hide_runtimes(request):
        return text  # the warning of `find_narrowing` says more
    if may_support_reset(request):
        text += "; KMP_AFFINITY=reset (set by ompbind) unbinds the initial thread after each parallel region"
    return text + "; if a second runtime is loaded later, all its threads run on the first CPU of the rank"


def find_narrowing(request: Request, workload: Workload) -> Iterator[str]:
    """Yield a warning on threads that run on the first CPU of their rank with --bind exact.

    A runtime narrows the initial thread to the first place, which has one CPU. Threads and processes that
    it creates later inherit this CPU, and a second runtime finds no other.
    """
    found = find_runtimes(request)
    remedy = "(--bind rank or thread avoids this)"
    libraries = [each.library for each in workload.libraries if each.method is not DetectionMethod.AVAILABLE]
    pools = [library for library in libraries if library.kind.role is LibraryRole.BLAS]
    if choose_syntax(request) is BindingSyntax.LIST:
        if not may_support_reset(request):
            method = DetectionMethod.PRELOADED
            runtime = next(runtime for runtime in KMP_READERS if workload.has(runtime, method=method))
            older = runtime.render_versions_before(runtime.facts.resets_from)
            yield (
                f"{older} leaves the initial thread, and the threads and processes that it creates, "
                "on the first CPU of the rank"
            )
    elif workload.python and found:
        yield (
            "--bind exact leaves the initial thread on the first CPU of the rank; Python threads, child "
            f"processes and runtimes that start after {found[0].kind.label} is loaded run there too {remedy}"
        )
    elif len(found) == 1 and pools and not may_support_reset(request):
        yield (
            f"with --bind exact and {found[0].kind.label}, all threads of {pools[0].kind.label} will run "
            f"on the first CPU of the rank {remedy}"
        )
    elif len(found) > 1:
        yield (
            f"--bind exact with {' and '.join(library.kind.label for library in found)}: all threads of the "
            f"runtime that starts second will run on the first CPU of the rank {remedy}"
        )
    elif _may_hide_runtimes(request):
        yield (
            "--bind exact: if the command runs Python, or a program with two OpenMP runtimes, most of its "
            "threads will run on the first CPU of the rank (for a program with only one runtime, "
            "--omp-runtime turns this warning off)"
        )


def _may_hide_runtimes(request: Request) -> bool:
    """Return whether the command starts a program that cannot be determined, and no runtime is known."""
    return request.workload is not None and request.workload.opaque and not find_runtimes(request)


_DECIDING = {KMP_AFFINITY, *SUBSET_VARIABLES, *PLACE_VARIABLES}
"""Variables that bind threads within the affinity mask."""


def find_overriding(plan: Plan) -> Iterator[str]:
    """Yield a warning for each of the user's variables that overrides the binding of the plan."""
    for name, value in plan.request.user_variables:
        if effect := find_override(name, value, has_places=plan.has_places):
            yield f"{name}={value} (from --env or --keep-env) {effect}"


def find_override(name: str, value: str, *, has_places: bool) -> str:
    """Return what a variable of the user does to the binding of a plan, "" if nothing.

    `has_places`: the plan binds threads to places.
    """
    words = split_words(value)
    if name in CPU_LIST_VARIABLES or (name == KMP_AFFINITY and words & {NO_RESPECT, DISABLED}):
        return "may move threads off the CPUs of their rank"
    if has_places and name in _DECIDING and not (name == KMP_AFFINITY and words <= KMP_MODIFIERS):
        return "will override the binding of the plan"
    return ""
