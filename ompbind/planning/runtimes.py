"""Which OpenMP runtimes a rank will load, and how its binding is written so that it holds in each of them.

The reasons are measured: most runtimes narrow the *initial thread* of a program (`openmp.binding`), and with
places, forked children of some versions crash.
"""

from collections.abc import Iterator, Sequence

from ompbind.errors import PlanError
from ompbind.machine.model import Level, Machine
from ompbind.openmp.binding import Bind, Binding, BindingSyntax, ProcBind
from ompbind.openmp.runtimes import KMP_READERS, OmpRuntime, find_aborting_pair, find_intercepting_pair
from ompbind.openmp.variables import find_override
from ompbind.planning.plan import Note, Placement, Plan, find_unbalanced
from ompbind.planning.request import Hold, Request
from ompbind.programs.command import Workload
from ompbind.programs.libraries import LIBRARY_KINDS, DetectedLibrary, DetectionMethod, Library, LibraryRole


def find_runtimes(request: Request) -> tuple[Library, ...]:
    """Return the OpenMP runtimes that the binding must work with, surest first; empty if none is known.

    If the request names a runtime, they are the detected libraries of this runtime, or one of unknown
    version.
    """
    found = tuple(detected.library for detected in request.workload.runtimes()) if request.workload else ()
    if request.omp_runtime is None:
        return found
    kind = LIBRARY_KINDS[request.omp_runtime.facts.library]
    return tuple(library for library in found if library.kind is kind) or (Library(path="", kind=kind),)


def find_certain_runtimes(request: Request) -> list[DetectedLibrary]:
    """Return the runtimes that will certainly be loaded: preloaded, or needed by the program."""
    runtimes = request.workload.runtimes() if request.workload else ()
    return [detected for detected in runtimes if detected.method is not DetectionMethod.AVAILABLE]


def find_fork_unsafe(request: Request) -> tuple[OmpRuntime, int] | None:
    """Return the oldest (runtime, version) that may be loaded and breaks forked children if it has places."""
    versions = ((library.family, library.version) for library in find_runtimes(request))
    known = ((family, version) for family, version in versions if family and version)
    unsafe = ((family, version) for family, version in known if not family.forks_safely(version))
    return min(unsafe, key=lambda runtime: runtime[1], default=None)


def choose_binding(request: Request) -> Binding:
    """Return how the threads of all ranks are bound: by places, by a list of CPUs, or not at all.

    The list is for a preloaded runtime that reads KMP_AFFINITY: other runtimes in the process ignore it.
    """
    syntax = BindingSyntax.PLACES
    if request.effective_bind is Bind.NONE or (request.bind is Bind.RANK and find_fork_unsafe(request)):
        syntax = BindingSyntax.UNBOUND
    elif request.bind is Bind.EXACT and request.workload is not None:
        families = [runtime for runtime in KMP_READERS if request.omp_runtime in (None, runtime)]
        if request.workload.has(*families, method=DetectionMethod.PRELOADED):
            syntax = BindingSyntax.LIST
    runtimes = find_runtimes(request)
    certain = [known.library for known in find_certain_runtimes(request) if known.library in runtimes]
    loaded = certain or runtimes  # one that resets the mask of the initial thread after regions may be loaded
    reset = not runtimes or any(known.family and known.family.resets(known.version) for known in loaded)
    return Binding(mode=request.bind, proc_bind=request.proc_bind, syntax=syntax, reset=reset)


def choose_bind(machine: Machine, request: Request, placements: Sequence[Placement]) -> Bind:
    """Return the binding mode: Bind.THREAD where the kernel does not move threads, if the user named none.

    Raises PlanError if threads are to be bound although they are held as `fixed`.

    Forked children would crash in some runtimes, and several processes of a rank would bind their threads to
    the same places: they keep Bind.RANK.
    """
    is_open = request.bind is Bind.RANK and not request.bind_given
    is_open = is_open and request.threads != 1 and request.processes_per_rank == 1
    needs_places = is_open and find_unbalanced(machine, placements) and not find_fork_unsafe(request)
    mode = Bind.THREAD if needs_places else request.bind
    if request.hold is Hold.FIXED and mode not in (Bind.RANK, Bind.NONE):
        text = f"--hold=fixed (in exec, --hold) prevents --bind {mode}: no thread can change its CPUs"
        raise PlanError(text, hint="use 'ompbind run --hold', or --bind rank")
    return mode


def _explain_detection(detected: DetectedLibrary) -> str:
    if detected.method is DetectionMethod.PRELOADED:
        return "preloaded"
    verb = "needed by" if detected.method is DetectionMethod.NEEDED else "found in"
    return f"{verb} {detected.origin}"


def check_runtimes(request: Request) -> None:
    """Raise PlanError if runtimes that a rank will certainly load do not work in one process."""
    certain = find_certain_runtimes(request)
    preloaded = [
        detected.library.kind for detected in certain if detected.method is DetectionMethod.PRELOADED
    ]
    if find_intercepting_pair({kind.family for kind in preloaded}):
        names = " and ".join(dict.fromkeys(kind.label for kind in preloaded))
        raise PlanError(
            f"{names} are preloaded together: one intercepts calls to the other, and both bind threads",
            hint="preload only one OpenMP runtime",
        )
    if pair := find_aborting_pair({detected.library.family for detected in certain}):
        first, second, message = pair
        sources = ", ".join(
            f"{detected.library.kind.label} ({_explain_detection(detected)})" for detected in certain
        )
        raise PlanError(
            f"a process that loads {first.label} and {second.label} aborts ({message}): {sources}",
            hint="preload neither, or only the runtime that the program needs",
        )


CONFLICT = "omp-runtime-conflict"
"""The code of warnings that threads will not run where the binding mode requests."""


def explain_runtime(plan: Plan) -> Iterator[Note]:
    """Yield notes on the OpenMP runtimes of ranks, and warnings on bindings that will not hold."""
    request, workload = plan.request, plan.request.workload or Workload()
    known = request.workload is not None or request.omp_runtime is not None
    if known:
        text = f"OpenMP runtime: {_render_runtimes(request, workload)}; {_render_binding(plan)}"
        yield Note(code="omp-runtime", text=text)
    for text in workload.preload_warnings:
        remedy = " (correct LD_PRELOAD, or unset it)" if text.startswith("LD_PRELOAD") else ""
        yield Note(code="preload", text=text + remedy, warning=True)
    for text in _find_conflicts(plan, workload) if known else ():
        yield Note(code=CONFLICT, text=text, warning=True)
    for name, value in request.user_variables:
        if effect := find_override(name, value, has_places=plan.has_places, is_held=bool(request.hold)):
            text = f"{name}={value} (from --env or --keep-env) {effect}"
            yield Note(code=CONFLICT, text=text, warning=True)
    cores = len(plan.machine.at(Level.CORE))
    threads = max(placement.threads for placement in plan.placements)
    if workload.python and threads > cores:
        text = f"MKL (also within torch) will start at most {cores} of {threads} threads, one per core"
        yield Note(code="mkl-dynamic", text=f"{text} (--env MKL_DYNAMIC=FALSE allows all)")


def _render_runtimes(request: Request, workload: Workload) -> str:
    if request.omp_runtime is not None:
        return f"{find_runtimes(request)[0].kind.label} (--omp-runtime)"
    sources: dict[str, list[str]] = {}
    for detected in workload.runtimes():
        library, family = detected.library, detected.library.family
        version = f" of {family.render_version(library.version)}" if library.version and family else ""
        path = f", {library.path}" if detected.method is DetectionMethod.PRELOADED else ""
        sources.setdefault(f"{library.kind.label}{version}", []).append(_explain_detection(detected) + path)
    if sources:
        return ", ".join(f"{label} ({' and '.join(found)})" for label, found in sources.items())
    if workload.static:
        return f"unknown ({workload.program} is statically linked)"
    if workload.opaque and workload.program:
        unseen = "ompbind cannot see what that program starts"
        return f"unknown (the command runs {workload.program}; {unseen})"
    if workload.opaque:
        return "unknown (the command, or the program that it runs, was not found)"
    if workload.python:
        return f"none found in the packages of {workload.python}"
    return f"none found in {workload.program}" if workload.program else "unknown without a command"


def _render_binding(plan: Plan) -> str:
    request, syntax = plan.request, plan.binding.syntax
    fork_unsafe = find_fork_unsafe(request)
    if syntax is BindingSyntax.UNBOUND and request.effective_bind is not Bind.NONE and fork_unsafe:
        runtime, _ = fork_unsafe
        versions = runtime.render_versions_before(runtime.facts.forks_safely_from)
        return f"no places, because with places forked children crash in {versions}"
    if not plan.has_places:
        return "only the process is bound, not its threads"
    if syntax is BindingSyntax.LIST:
        return "KMP_AFFINITY lists the CPUs, because a second runtime would read OMP_PLACES too"
    if request.bind is Bind.RANK and any(placement.places[1:] for placement in plan.placements):
        return "the first place has all CPUs of the rank, the places of workers have no service CPUs"
    if request.bind is Bind.RANK:
        return "so each rank has one place with all its CPUs, which works with every runtime"
    if request.bind is not Bind.EXACT:
        return "each worker thread has its own place, the initial thread has all CPUs of the rank"
    text = "each thread gets its own place"
    if _may_hide_runtimes(request):
        return text  # the warning of `_warn_of_exact_binding` says more
    if plan.binding.reset:
        text += "; KMP_AFFINITY=reset (set by ompbind) unbinds the initial thread after each parallel region"
    return f"{text}; if a second runtime is loaded later, all its threads run on the first CPU of the rank"


def _find_conflicts(plan: Plan, workload: Workload) -> Iterator[str]:
    request = plan.request
    requested, certain = request.omp_runtime, find_certain_runtimes(request)
    if not plan.has_places:
        return
    if requested and certain and all(detected.library.family is not requested for detected in certain):
        label, reason = certain[0].library.kind.label, _explain_detection(certain[0])
        yield f"--omp-runtime is {requested}, but {label} will be loaded ({reason})"
    if fork_unsafe := find_fork_unsafe(request):
        runtime, version = fork_unsafe
        crashing = f"forked children will crash in {runtime.label} of {runtime.render_version(version)}"
        yield f"{crashing}, because --bind {request.bind} sets places (--bind rank sets none)"
    if request.proc_bind is not ProcBind.CLOSE and plan.binding.syntax is BindingSyntax.LIST:
        yield f"--proc-bind {request.proc_bind} has no effect: KMP_AFFINITY lists the CPUs in thread order"
    if request.bind is Bind.EXACT and any(len(placement.cpus) > 1 for placement in plan.placements):
        yield from _warn_of_exact_binding(request, plan.binding, workload)


def _warn_of_exact_binding(request: Request, binding: Binding, workload: Workload) -> Iterator[str]:
    """Yield a warning on threads that run on the first CPU of their rank with --bind exact.

    A runtime narrows the initial thread to the first place, which has one CPU. Threads and processes that
    it creates later inherit this CPU, and a second runtime finds no other.
    """
    found = [library.kind.label for library in find_runtimes(request)]
    blas = [  # the BLAS libraries that will certainly be loaded: most have a thread pool of their own
        detected.library.kind.label
        for detected in workload.libraries
        if detected.method is not DetectionMethod.AVAILABLE and detected.library.kind.role is LibraryRole.BLAS
    ]
    first = "on the first CPU of the rank"
    remedy = "(--bind rank or thread avoids this)"
    if binding.syntax is BindingSyntax.LIST:
        if not binding.reset:
            preloaded = DetectionMethod.PRELOADED
            runtime = next(known for known in KMP_READERS if workload.has(known, method=preloaded))
            older = runtime.render_versions_before(runtime.facts.resets_from)
            yield f"{older} leaves the initial thread, and the threads and processes that it creates, {first}"
    elif workload.python and found:
        later = f"runtimes that start after {found[0]} is loaded"
        yield (
            f"--bind exact leaves the initial thread {first}; Python threads, child processes and {later} "
            f"run there too {remedy}"
        )
    elif len(found) == 1 and blas and not binding.reset:
        yield f"with --bind exact and {found[0]}, all threads of {blas[0]} will run {first} {remedy}"
    elif len(found) > 1:
        second = "all threads of the runtime that starts second"
        yield f"--bind exact with {' and '.join(found)}: {second} will run {first} {remedy}"
    elif _may_hide_runtimes(request):
        yield (
            "--bind exact: if the command runs Python, or a program with two OpenMP runtimes, most of its "
            f"threads will run {first} (for a program with only one runtime, --omp-runtime turns this "
            "warning off)"
        )


def _may_hide_runtimes(request: Request) -> bool:
    """Return whether the command starts a program that cannot be determined, and no runtime is known."""
    return request.workload is not None and request.workload.opaque and not find_runtimes(request)


# Programs that start worker processes divide the CPUs among these: joblib, scikit-learn, Dask and Ray set the
# number of threads of each worker, but keep a number that their user has set. A number that ompbind sets is
# such a number: each worker would then have as many threads as the whole rank. So a Python program gets no
# number where its libraries count the CPUs of the affinity mask themselves (`openmp.variables.MASK_COUNTS`).
# Other programs get all numbers: some take a missing OMP_NUM_THREADS for 1.


def counts_by_mask(plan: Plan, placement: Placement) -> bool:
    """Return whether libraries of a rank find its number of threads by its affinity mask.

    They do not if an option, a CPU quota or service CPUs make that number smaller than the number of CPUs,
    nor if the first place of the rank is smaller than its mask: the initial thread is then narrowed to it.
    """
    request = plan.request
    return (
        request.workload is not None
        and request.workload.is_python_program
        and request.compat is None
        and request.threads is None
        and request.smt == "auto"
        and request.effective_bind in (Bind.RANK, Bind.NONE)
        and plan.machine.bindable
        and placement.processes == 1
        and placement.threads == len(placement.cpus) == len(placement.cpuset)
    )
