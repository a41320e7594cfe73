"""The binding mode "exact": how it is explained, and which threads it leaves on the first CPU of a rank."""

from collections.abc import Iterator

from ompbind.openmp.binding import BindingSyntax
from ompbind.openmp.runtimes import KMP_READERS
from ompbind.planning.request import Request
from ompbind.planning.runtime_choice import choose_syntax, find_runtimes, may_support_reset
from ompbind.programs.library_catalog import Library, LibraryRole
from ompbind.programs.workload import DetectionMethod, Workload


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
    if choose_syntax(request) is BindingSyntax.LIST:
        if not may_support_reset(request):
            preloaded = (
                runtime for runtime in KMP_READERS if workload.has(runtime, method=DetectionMethod.PRELOADED)
            )
            runtime = next(preloaded)
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
    elif len(found) == 1 and (pools := _find_certain_blas(workload)) and not may_support_reset(request):
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


def _find_certain_blas(workload: Workload) -> list[Library]:
    """Return the BLAS libraries that will certainly be loaded: most have a thread pool of their own."""
    certain = (
        detected.library
        for detected in workload.libraries
        if detected.method is not DetectionMethod.AVAILABLE
    )
    return [library for library in certain if library.kind.role is LibraryRole.BLAS]


def _may_hide_runtimes(request: Request) -> bool:
    """Return whether the command starts a program that cannot be determined, and no runtime is known."""
    return request.workload is not None and request.workload.opaque and not find_runtimes(request)
