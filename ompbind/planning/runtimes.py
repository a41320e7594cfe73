"""Which OpenMP runtimes a rank will load, and how its binding is written so that it holds in each of them.

The reasons are measured. Most runtimes narrow the *initial thread* of a program (`openmp.places`) to the
first place. All that this thread creates later inherits the narrowed affinity mask: threads, processes, and
the CPUs that a second runtime finds. With some versions, places have another cost: forked children crash.
"""

from collections.abc import Sequence

from ompbind.errors import PlanError
from ompbind.openmp.binding import Bind, BindingSyntax
from ompbind.openmp.runtimes import KMP_READERS, OmpRuntime, find_aborting_pair, find_intercepting_pair
from ompbind.planning.request import Request
from ompbind.programs.library_catalog import LIBRARY_KINDS, DetectedLibrary, DetectionMethod, Library


def find_runtimes(request: Request) -> tuple[Library, ...]:
    """Return the OpenMP runtimes that the binding must work with, surest first; empty if none is known.

    If the request names a runtime, only libraries of this runtime are returned: the detected libraries, or a
    library of unknown version if none was detected.
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
    """Return a runtime that a rank may load and whose forked children crash if it has places; None if none.

    If there are several, it is the oldest, as (runtime, version).
    """
    libraries = find_runtimes(request)
    versions = [
        (library.family, library.version) for library in libraries if library.family and library.version
    ]
    unsafe = [(family, version) for family, version in versions if not family.forks_safely(version)]
    return min(unsafe, key=lambda runtime: runtime[1], default=None)


def choose_syntax(request: Request) -> BindingSyntax:
    """Return whether the binding is written as places, as a list of CPUs, or not at all.

    The list is for a preloaded runtime that reads KMP_AFFINITY: other runtimes in the process ignore it.
    """
    if request.bind is Bind.NONE or (request.bind is Bind.RANK and find_fork_unsafe(request)):
        return BindingSyntax.UNBOUND
    families = [runtime for runtime in KMP_READERS if request.omp_runtime in (None, runtime)]
    preloaded = request.workload is not None and request.workload.has(
        *families, method=DetectionMethod.PRELOADED
    )
    return BindingSyntax.LIST if request.bind is Bind.EXACT and preloaded else BindingSyntax.PLACES


def may_support_reset(request: Request) -> bool:
    """Return whether a runtime that supports KMP_AFFINITY=reset is, or may be, loaded.

    It restores the affinity mask of the initial thread after each parallel region.
    """
    runtimes = find_runtimes(request)
    certain = [
        detected.library for detected in find_certain_runtimes(request) if detected.library in runtimes
    ]
    libraries = certain or runtimes
    return not runtimes or any(known.family and known.family.resets(known.version) for known in libraries)


def explain_detection(detected: DetectedLibrary) -> str:
    """Return why a runtime is expected: "preloaded", "needed by app", "found in torch"."""
    if detected.method is DetectionMethod.PRELOADED:
        return "preloaded"
    verb = "needed by" if detected.method is DetectionMethod.NEEDED else "found in"
    return f"{verb} {detected.origin}"


def check_runtimes(certain: Sequence[DetectedLibrary]) -> None:
    """Raise PlanError if runtimes that a rank will certainly load do not work in one process."""
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
            f"{detected.library.kind.label} ({explain_detection(detected)})" for detected in certain
        )
        raise PlanError(
            f"a process that loads {first.label} and {second.label} aborts ({message}): {sources}",
            hint="preload neither, or only the runtime that the program needs",
        )
