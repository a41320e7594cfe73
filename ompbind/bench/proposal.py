"""What to compare on a machine if nothing is chosen: machine × request → choices. Pure.

Proposed are choices that change the plan and that often matter: kinds of cores, the hardware threads of each
core, threads that are bound one by one, memory on all NUMA nodes of a rank, and the distance between ranks.
Numbers of ranks are proposed where candidates with different numbers can be compared. The numbers come first,
then each single choice for all numbers, then pairs of choices about CPUs.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, combinations

from ompbind.bench.vary import Choices
from ompbind.errors import OmpbindError
from ompbind.machine.model import CORE_KIND_NAMES, Level, Machine, find_overlapping
from ompbind.openmp.binding import Bind
from ompbind.planning.notes import find_throttling
from ompbind.planning.plan import Plan
from ompbind.planning.planner import make_plan
from ompbind.planning.request import MemoryMode, Request
from ompbind.record import Record

MOST = 12
"""Candidates at most, without the command without ompbind."""

_RANK_LEVELS = (Level.PACKAGE, Level.NODE, Level.L3)
"""Levels whose domains are a sensible number of ranks."""

_FEW_RANKS = (2, 4)
"""Numbers of ranks on a machine without several domains."""

_FEW_THREADS = (1, 2, 4)
"""Hardware threads of each core to use, besides all of them."""


class ProposedChoice(Record):
    """One choice: its key and its text, and the field of a request with its value."""

    key: str
    text: str
    field: str
    value: object


def make_proposal(machine: Machine, request: Request, fixed: Collection[str]) -> tuple[Choices, ...]:
    """Return the choices of at most MOST candidates, () if only the default plan makes sense.

    `fixed` are the keys of options that do not vary. A choice is left out if it cannot be planned, has the
    placements of an earlier choice, or exceeds the CPU quota.
    """
    seen: list[object] = []
    made: list[Choices] = []
    for choices in _list_proposed(machine, request, fixed):
        found = _describe(machine, request, choices)
        if found is not None and found not in seen:
            seen.append(found)
            made.append(tuple((choice.key, choice.text) for choice in choices))
        if len(made) == MOST:
            break
    return tuple(made)


def _list_proposed(
    machine: Machine, request: Request, fixed: Collection[str]
) -> Iterator[tuple[ProposedChoice, ...]]:
    """Yield the choices of all candidates, the most important first; () is the default plan."""
    varied = "ranks" not in fixed and not request.names_each_rank
    numbers = [(_make("ranks", number),) for number in _list_numbers(machine)] if varied else [()]
    proposed = () if request.is_unbound else _list_singles(machine, request)
    singles = [single for single in proposed if single.key not in fixed]
    of_cpus = [single for single in singles if single.key != "memory"]
    pairs = (pair for pair in combinations(of_cpus, 2) if pair[0].key != pair[1].key)
    for choices in chain([()], ((single,) for single in singles), pairs):
        yield from ((*number, *choices) for number in numbers)


def _list_numbers(machine: Machine) -> list[int]:
    """Return sensible numbers of ranks, the smallest first: one per domain of each level."""
    cpus = machine.default_cpus
    numbers = {1, *(len(find_overlapping(machine.at(level), cpus)) for level in _RANK_LEVELS)} - {0}
    if numbers == {1}:
        numbers.update(_FEW_RANKS)
    cores = len(find_overlapping(machine.at(Level.CORE), cpus))
    return sorted(number for number in numbers if number <= cores)


def _list_singles(machine: Machine, request: Request) -> Iterator[ProposedChoice]:
    """Yield choices of single options, the most important first."""
    if {kind.name for kind in machine.kinds} == set(CORE_KIND_NAMES):
        yield _make("core-kind", "performance")
    threads = max((len(core.cpus & machine.allowed) for core in machine.at(Level.CORE)), default=1)
    yield _make("smt", "all")
    yield from (_make("smt", few) for few in _FEW_THREADS if few < threads)
    yield _make("bind", Bind.THREAD)
    yield _make("memory", MemoryMode.INTERLEAVE)
    if request.cores or request.threads:  # otherwise each strategy uses all cores
        yield from (_make("strategy", name) for name in ("compact", "spread"))


def _make(key: str, value: object) -> ProposedChoice:
    return ProposedChoice(key=key, text=str(value), field=key.replace("-", "_"), value=value)


def _describe(machine: Machine, request: Request, choices: Sequence[ProposedChoice]) -> object:
    """Return what ranks would get; None if that cannot be planned, or is not sensible."""
    chosen = request.replace(**{choice.field: choice.value for choice in choices})
    try:
        plan = make_plan(machine, chosen)
    except OmpbindError:
        return None
    interleaves = any(choice.key == "memory" for choice in choices)
    if find_throttling(plan) or (interleaves and not _has_remote_memory(plan)):
        return None
    return [
        (placement.cpus, placement.places, placement.threads, placement.service_cpus, placement.memory)
        for placement in plan.placements
    ]


def _has_remote_memory(plan: Plan) -> bool:
    """Return whether a rank has the memory of several NUMA nodes."""
    return any(len(placement.memory_nodes) > 1 for placement in plan.placements)
