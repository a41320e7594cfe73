"""Which OpenMP runtimes a rank will have, and how its binding is written so that it holds in each of them.

The reasons are measured. A runtime narrows the *initial thread* of a program to the first place that it is
told, and all that this thread creates later inherits that: other threads, processes, and the CPUs that a
second runtime sees. Some versions have places only at a price: children that they fork crash.
"""

from ompbind.errors import PlanError
from ompbind.openmp.binding import Bind, BindingSyntax
from ompbind.openmp.runtimes import KMP_READERS, OmpRuntime, find_ending, find_intercepting
from ompbind.planning.request import Request
from ompbind.programs.library_catalog import KINDS, Library
from ompbind.programs.workload import Found, How


def find_runtimes(request: Request) -> tuple[Library, ...]:
    """Return the OpenMP runtimes to write for, surest first; none where nothing is known of any.

    A family that the request names stands for those of it that were found, or for one of unknown version.
    """
    found = tuple(one.library for one in request.workload.runtimes()) if request.workload else ()
    if request.omp_runtime is None:
        return found
    kind = KINDS[request.omp_runtime.facts.library]
    return tuple(one for one in found if one.kind is kind) or (Library(path="", kind=kind),)


def find_sure(request: Request) -> list[Found]:
    """Return the runtimes that will be there, whatever else the command may load."""
    found = request.workload.runtimes() if request.workload else ()
    return [one for one in found if one.how is not How.AVAILABLE]


def find_fragile(request: Request) -> tuple[OmpRuntime, int] | None:
    """Return the oldest runtime that a rank may load whose forked children crash when it has places."""
    known = [(one.family, one.version) for one in find_runtimes(request) if one.family and one.version]
    fragile = [(family, version) for family, version in known if not family.forks_safely(version)]
    return min(fragile, key=lambda one: one[1], default=None)


def choose_syntax(request: Request) -> BindingSyntax:
    """Choose whether the binding of a request is written as places, as a list of CPUs, or not at all."""
    if request.bind is Bind.NONE or (request.bind is Bind.RANK and find_fragile(request)):
        return BindingSyntax.UNBOUND
    asked = request.omp_runtime  # beside a preloaded runtime that reads KMP_AFFINITY others may be loaded
    families = [one for one in KMP_READERS if asked in (None, one)]
    preloaded = request.workload is not None and request.workload.has(*families, how=How.PRELOADED)
    return BindingSyntax.LIST if request.bind is Bind.EXACT and preloaded else BindingSyntax.PLACES


def knows_reset(request: Request) -> bool:
    """Tell whether a runtime may be there that can be told to free the initial thread after each region."""
    runtimes = find_runtimes(request)
    sure = [one.library for one in find_sure(request) if one.library in runtimes]
    return not runtimes or any(one.family and one.family.resets(one.version) for one in sure or runtimes)


def check_runtimes(request: Request) -> None:
    """Refuse runtimes that cannot be in one process; raises PlanError."""
    sure = find_sure(request)
    preloaded = [one.library.kind for one in sure if one.how is How.PRELOADED]
    if find_intercepting({kind.family for kind in preloaded}):
        names = " and ".join(dict.fromkeys(kind.label for kind in preloaded))
        raise PlanError(
            f"{names} are preloaded together: one takes the other's calls, both bind",
            hint="preload one OpenMP runtime only",
        )
    if pair := find_ending({one.library.family for one in sure}):
        one, other, message = pair
        told = ", ".join(f"{found.library.kind.label} ({tell_why(found)})" for found in sure)
        raise PlanError(
            f"{one.label} and {other.label} in one process end it ({message}): {told}",
            hint="preload neither, or the one that the program needs",
        )


def tell_why(found: Found) -> str:
    """Say in a few words why a runtime is expected: "preloaded", "app needs it"."""
    if found.how is How.PRELOADED:
        return "preloaded"
    return f"{found.by} needs it" if found.how is How.NEEDED else f"in {found.by}"
