"""How OpenMP threads are bound: the modes of --bind, the places of a rank in each mode, and their text."""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import cycle, islice

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.record import Record

OR_HOLD = ", or use --hold"  # ends the remedies for what binds threads outside of the CPUs of a rank


class Bind(StrEnum):
    """The modes of --bind: how the OpenMP threads of a rank are bound; every mode also binds its process."""

    RANK = "rank"
    CORE = "core"
    THREAD = "thread"
    EXACT = "exact"
    NONE = "none"


class ProcBind(StrEnum):
    """How OpenMP distributes the threads of a team over places (OMP_PROC_BIND)."""

    CLOSE = "close"
    SPREAD = "spread"


DISTRIBUTING_WORDS = ("true", *map(str, ProcBind))
"""Values of OMP_PROC_BIND that only distribute threads over the places of OMP_PLACES."""


class BindingSyntax(StrEnum):
    """How a binding is written: as OMP_PLACES, as a CPU list in KMP_AFFINITY, or not at all."""

    PLACES = "places"
    LIST = "list"
    UNBOUND = "unbound"


class Binding(Record):
    """How the threads of one rank are bound, and how this is written.

    With `reset`, KMP_AFFINITY=reset restores the affinity mask of the initial thread after each parallel
    region, where the mode needs it and the runtime supports it.
    """

    mode: Bind = Bind.RANK
    proc_bind: ProcBind = ProcBind.CLOSE
    syntax: BindingSyntax = BindingSyntax.PLACES
    reset: bool = False


# A *place* is a set of CPUs within which an OpenMP thread may move. The text has the form `{a,b},{c}` with
# decimal numbers, which every OpenMP runtime reads in the same way. If it is longer than TEXT_LIMIT bytes,
# runs of CPUs are written as `{start:length}`.
#
# Most runtimes *narrow* the initial thread, the thread that runs `main`: its affinity mask shrinks to its
# place, which is the first one. All that this thread creates later inherits the mask: other threads, child
# processes, a second runtime. Therefore the first place has all CPUs of the rank, unless the mode is
# "exact". *Service CPUs*, on which no worker runs, are in the first place only; then every thread has a place
# of its own, because a second thread in the first place would be a worker on service CPUs. Measured with
# libgomp, libomp 14 to 19 and libiomp5, which all accept a place several times:
#
#     mode    places of a rank with CPUs 0-3 (cores 0,1 and 2,3)   and service CPUs 4-5
#     rank    {0,1,2,3}                                            {0,1,2,3,4,5},{0,1,2,3},{0,1,2,3},{0,1,2,3}
#     core    {0,1,2,3},{2,3}                                      {0,1,2,3,4,5},{0,1},{2,3},{2,3}
#     thread  {0,1,2,3},{1},{2},{3}                                {0,1,2,3,4,5},{1},{2},{3}
#     exact   {0},{1},{2},{3}   (narrows the initial thread to CPU 0)


TEXT_LIMIT = min(runtime.facts.places_limit for runtime in OmpRuntime if runtime.facts.places_limit)
"""The longest OMP_PLACES that every runtime accepts, in bytes."""


def make_places(
    cpus: Sequence[int], cores: Sequence[CpuSet], bind: Bind, threads: int = 0, service_cpus: CpuSet = EMPTY
) -> tuple[tuple[CpuSet, ...], str]:
    """Return the places of a rank in order of its threads, and their text; none if the text is too long.

    `cores` has the CPUs that compute of each core, in the order of the rank. With service CPUs, a rank has a
    place for each of its `threads`. If these are too long with Bind.RANK, the rank has one place.
    """
    if bind is Bind.NONE:
        return (), ""
    compute = CpuSet(cpus)
    whole, ways = compute | service_cpus, list[tuple[CpuSet, ...]]()
    if service_cpus:
        core_of = {cpu: core for core in cores for cpu in core}
        for_worker = {Bind.RANK: lambda cpu: compute, Bind.CORE: core_of.__getitem__}
        place_of = for_worker.get(bind, lambda cpu: CpuSet((cpu,)))
        ways = [(whole, *map(place_of, islice(cycle(cpus), 1, threads)))]
    elif bind is Bind.CORE:
        ways = [(compute, *cores[1:])]
    elif bind is not Bind.RANK:
        first, *others = (CpuSet((cpu,)) for cpu in cpus)
        ways = [(first if bind is Bind.EXACT else compute, *others)]
    if bind is Bind.RANK:
        ways.append((whole,))
    texts = ((places, render_places(places)) for places in ways)
    return next(((places, text) for places, text in texts if text is not None), ((), ""))


def render_places(places: Sequence[CpuSet]) -> str | None:
    """Return places as the value of OMP_PLACES; None if it is too long for some runtime."""
    runs = (
        ",".join(str(start) if length == 1 else f"{start}:{length}" for start, length in place.ranges())
        for place in places
    )
    for texts in ((",".join(map(str, place)) for place in places), runs):
        text = ",".join(f"{{{place}}}" for place in texts)
        if len(text) <= TEXT_LIMIT:
            return text
    return None


def parse_places(text: str) -> tuple[CpuSet, ...] | None:
    """Return the places in a value of OMP_PLACES; None for forms other than `{a,b}` and `{start:length}`."""
    text = "".join(text.split())
    item = "[0-9]{1,5}(?::[0-9]{1,5})?"
    if not re.fullmatch(rf"\{{{item}(?:(?:,|\}},\{{){item})*\}}", text):
        return None
    return tuple(CpuSet(_parse_place(place)) for place in text[1:-1].split("},{"))


def _parse_place(place: str) -> Iterator[int]:
    for item in place.split(","):
        first, _, length = item.partition(":")
        yield from range(int(first), int(first) + int(length or 1))
