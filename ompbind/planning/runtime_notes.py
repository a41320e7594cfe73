"""What a plan says of OpenMP runtimes: which ranks will have, how that is known, and what will not hold."""

from collections.abc import Iterator

from ompbind.machine.model import Level
from ompbind.openmp.binding import Bind, BindingSyntax
from ompbind.openmp.runtimes import (
    CPU_LISTS,
    DISABLED,
    KMP_AFFINITY,
    KMP_MODIFIERS,
    KMP_READERS,
    NO_RESPECT,
    STANDARD,
    SUBSETS,
)
from ompbind.openmp.variables import split_words
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import Request
from ompbind.planning.runtime_choice import (
    choose_syntax,
    find_fragile,
    find_runtimes,
    find_sure,
    knows_reset,
    tell_why,
)
from ompbind.programs.library_catalog import Library, Role
from ompbind.programs.workload import How, Workload

CONFLICT = "omp-runtime-conflict"
"""The code of warnings that threads will not be where the binding mode says."""

_DECIDING = {KMP_AFFINITY, *SUBSETS, *STANDARD}
"""Variables that decide where threads are within the affinity mask."""


def explain_runtime(plan: Plan) -> Iterator[Note]:
    """Say which runtimes ranks will have, how that is known, what follows from it, and what will not hold."""
    request = plan.request
    known = request.workload is not None or request.omp_runtime is not None
    if known:
        yield Note(code="omp-runtime", text=f"OpenMP runtime: {_told(request)}; {_consequence(plan)}")
    for trouble in request.workload.troubles if request.workload else ():
        yield Note(code="preload", text=trouble, warning=True)
    for text in (*(_find_conflicts(plan) if known else ()), *_find_overriding(plan)):
        yield Note(code=CONFLICT, text=text, warning=True)
    workload, cores = request.workload, len(plan.machine.at(Level.CORE))
    threads = max(one.threads for one in plan.placements)
    if workload and workload.python and threads > cores:  # with SMT and without
        text = f"MKL, and torch with it, start no more than {cores} of {threads} threads here"
        yield Note(code="mkl-dynamic", text=f"{text}, one for each core (--env MKL_DYNAMIC=FALSE lets them)")


def _told(request: Request) -> str:
    workload = request.workload or Workload()
    if request.omp_runtime is not None:
        return f"{find_runtimes(request)[0].kind.label}, as --omp-runtime says"
    places: dict[str, list[str]] = {}
    for one in workload.runtimes():
        library, family = one.library, one.library.family
        version = f" of {family.name_version(library.version)}" if library.version and family else ""
        path = f", {library.path}" if one.how is How.PRELOADED else ""
        places.setdefault(f"{library.kind.label}{version}", []).append(tell_why(one) + path)
    if places:
        return ", ".join(f"{label} ({' and '.join(where)})" for label, where in places.items())
    if workload.static:
        return f"not known, {workload.program} is linked statically"
    if workload.opaque:
        program = workload.program
        missing = "the command, or what it leads to, is not found"
        return "not known, " + (f"{program} does not tell what it will run" if program else missing)
    if workload.python:
        return f"none in the packages of {workload.python}"
    return f"none that {workload.program} needs" if workload.program else "not known without the command"


def _consequence(plan: Plan) -> str:
    request = plan.request
    syntax = choose_syntax(request)
    if syntax is not BindingSyntax.UNBOUND and not any(one.places for one in plan.placements):
        return "no thread is bound, only the process"
    if syntax is BindingSyntax.LIST:
        return "KMP_AFFINITY lists the CPUs, since one more runtime would take OMP_PLACES for its own"
    if syntax is BindingSyntax.UNBOUND:
        fragile = find_fragile(request)
        if request.bind is Bind.NONE or fragile is None:
            return "no thread is bound, only the process"
        older = fragile[0].name_before(fragile[0].facts.forks_safely_from)
        return f"no places, with which a {older} crashes the children that it forks"
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
    sure = find_sure(request)
    if asked and sure and all(one.library.family is not asked for one in sure):
        there = f"{sure[0].library.kind.label} will be there ({tell_why(sure[0])})"
        yield f"--omp-runtime says {asked}, but {there}"
    if fragile := find_fragile(request):
        runtime, version = fragile
        yield (
            f"{runtime.label} of {runtime.name_version(version)} crashes children that it forks when it has "
            f"places, as with --bind {request.bind} (--bind rank gives it none)"
        )
    if request.bind is Bind.EXACT and any(len(one.cpus) > 1 for one in plan.placements):
        yield from _find_narrowing(request, request.workload or Workload())


def _find_overriding(plan: Plan) -> Iterator[str]:
    """Yield the user's own variables by which threads would be bound otherwise than the plan says."""
    binds = any(one.places for one in plan.placements)
    for name, value in plan.request.own_variables:
        words = split_words(value)
        given = f"{name}={value}, which --env or --keep-env gives to ranks,"
        if name in CPU_LISTS or (name == KMP_AFFINITY and words & {NO_RESPECT, DISABLED}):
            yield f"{given} may take threads out of the CPUs of their rank"
        elif binds and name in _DECIDING and not (name == KMP_AFFINITY and words <= KMP_MODIFIERS):
            yield f"{given} binds threads otherwise than this plan"


def _find_narrowing(request: Request, workload: Workload) -> Iterator[str]:
    """Yield who finds itself on the first CPU of its rank, where each thread is to have a CPU of its own."""
    found = find_runtimes(request)
    first = "on the first CPU of its rank"
    if choose_syntax(request) is BindingSyntax.LIST:
        if not knows_reset(request):
            old = next(one for one in KMP_READERS if workload.has(one, how=How.PRELOADED))
            older = old.name_before(old.facts.resets_from)
            yield f"{older} leaves the initial thread, and all it creates, {first}"
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
