"""OpenMP places: the places of a rank in each binding mode, and their text.

A *place* is a set of CPUs within which an OpenMP thread may move. The text has the form `{a,b},{c}` with
decimal numbers, which every OpenMP runtime reads in the same way. If it is longer than TEXT_LIMIT bytes,
runs of CPUs are written as `{start:length}`.

Most runtimes *narrow* the initial thread, the thread that runs `main`: its affinity mask shrinks to its
place, which is the first one. All that this thread creates later inherits the mask: other threads, child
processes, a second runtime. Therefore the first place has all CPUs of the rank, unless the mode is "exact":

    mode    places of a rank with CPUs 0-3 (cores 0,1 and 2,3)    narrowed
    rank    {0,1,2,3}                                             nothing
    core    {0,1,2,3},{2,3}                                       nothing
    thread  {0,1,2,3},{1},{2},{3}                                 nothing
    exact   {0},{1},{2},{3}                                       the initial thread, to CPU 0
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ompbind.cpuset import CpuSet, union
from ompbind.openmp.binding import Bind
from ompbind.openmp.runtimes import OmpRuntime

TEXT_LIMIT = min(runtime.facts.places_limit for runtime in OmpRuntime if runtime.facts.places_limit)
"""The longest OMP_PLACES that every runtime accepts, in bytes."""

Cores: TypeAlias = Sequence[CpuSet]
"""The CPUs of one rank, a set for each core, in the order of the rank."""


def make_places(cpus: Sequence[int], cores: Cores, bind: Bind) -> tuple[CpuSet, ...]:
    """Return the places of a rank, in order of its threads; none for Bind.NONE."""
    if bind is Bind.NONE:
        return ()
    whole = CpuSet(cpus)
    if bind is Bind.RANK:
        return (whole,)
    if bind is Bind.CORE:
        return (whole, *cores[1:])
    each = tuple(CpuSet((cpu,)) for cpu in cpus)
    return each if bind is Bind.EXACT else (whole, *each[1:])


def render_places(places: Sequence[CpuSet]) -> str | None:
    """Return places as the value of OMP_PLACES; None if it is too long for some runtime."""
    for render in (_render_numbers, _render_runs):
        text = ",".join(f"{{{render(place)}}}" for place in places)
        if len(text) <= TEXT_LIMIT:
            return text
    return None


def _render_numbers(place: CpuSet) -> str:
    return ",".join(map(str, place))


def _render_runs(place: CpuSet) -> str:
    return ",".join(str(start) if length == 1 else f"{start}:{length}" for start, length in place.ranges())


def parse_places(text: str) -> tuple[CpuSet, ...] | None:
    """Return the places in a value of OMP_PLACES; None for forms other than `{a,b}` and `{start:length}`."""
    text = "".join(text.split())
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        return tuple(CpuSet(_parse_place(place)) for place in text[1:-1].split("},{"))
    except ValueError:
        return None


def _parse_place(place: str) -> Iterator[int]:
    for item in place.split(","):
        start, colon, length = item.partition(":")
        first = _parse_number(start)
        yield from range(first, first + (_parse_number(length) if colon else 1))


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ValueError(f"{text!r} is not a CPU number")
    return int(text)


# OpenMP places of a rank with *service CPUs*, on which no worker runs: they are in the first place only.
#
# Every thread has a place of its own: a second thread in the first place would be a worker on service CPUs.
# Measured with libgomp, libomp 14 to 19 and libiomp5, which all accept a place several times:
#
#     mode    places of the same rank with service CPUs 4-5
#     rank    {0,1,2,3,4,5},{0,1,2,3},{0,1,2,3},{0,1,2,3}
#     core    {0,1,2,3,4,5},{0,1},{2,3},{2,3}
#     thread  {0,1,2,3,4,5},{1},{2},{3}


def make_service_places(
    cpu_of_threads: Sequence[int], cores: Cores, bind: Bind, service_cpus: CpuSet
) -> tuple[CpuSet, ...]:
    """Return the places of a rank with service CPUs, one for each thread; none for Bind.NONE.

    `cpu_of_threads` has the CPU of each thread, in order; `cores` are the CPUs that compute.
    """
    if bind is Bind.NONE:
        return ()
    compute = union(cores)
    if bind is Bind.RANK:
        workers = [compute] * len(cpu_of_threads)
    elif bind is Bind.CORE:
        core_of = {cpu: core for core in cores for cpu in core}
        workers = [core_of[cpu] for cpu in cpu_of_threads]
    else:
        workers = [CpuSet((cpu,)) for cpu in cpu_of_threads]
    return (compute | service_cpus, *workers[1:])
