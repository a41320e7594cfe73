"""The texts of --vary: `smt=1,2` → the key of an option and its values; several of them → all combinations.

Values are separated by commas, or by semicolons if the text has any: `mask=0,2;1,3`. A semicolon at the end
separates nothing, so that a single value can have commas. Pure: which keys and values exist is decided where
options are read.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, combinations, product, zip_longest
from math import prod
from typing import TypeAlias

from ompbind.cpuset import count
from ompbind.errors import OmpbindError, PositionError, RequestError
from ompbind.machine.model import CoreChoice, Level, Machine
from ompbind.openmp.binding import Bind
from ompbind.planning.notes import find_throttling
from ompbind.planning.plan import Plan
from ompbind.planning.planner import make_plan
from ompbind.planning.request import MemoryMode, Request, Requests
from ompbind.programs.libraries import LibraryRole

LIMIT = 256
"""Combinations at most: each has to win against all others, which takes more rounds the more there are."""

_HINT = "write OPTION=VALUE,VALUE, as in --vary smt=1,2"

Choices: TypeAlias = tuple[tuple[str, str], ...]
"""The options of one candidate: (key, text) pairs in the order of --vary."""

MakePlan = Callable[[Machine, Requests], Plan]  # makes the plan of a request; raises OmpbindError

Variations: TypeAlias = Iterable[tuple[str, tuple[str, ...]]]
"""All --vary: the key of an option, and the texts of its values."""


def parse_variation(text: str) -> tuple[str, dict[str, tuple[int, int]]]:
    """Return the key in a text of --vary, and its values, each with its position.

    Raises PositionError for a missing key or value, and for a value that is there twice.
    """
    key, equals, values = text.partition("=")
    if not (key.strip() and equals):
        wrong = f"{key.strip()} has no values" if key.strip() else "the option is missing"
        raise PositionError(wrong, text=text, span=(0, len(key)), hint=_HINT)
    separator = ";" if ";" in values else ","
    parts = values.split(separator)
    if separator == ";" and not parts[-1].strip():
        parts.pop()
    found: dict[str, tuple[int, int]] = {}
    start = len(key) + len(equals)
    for part in parts:
        value, first = part.strip(), start + len(part) - len(part.lstrip())
        span = (first, first + len(value))
        if not value:
            raise PositionError(f"a value of {key.strip()} is missing", text=text, span=span, hint=_HINT)
        if value in found:
            message = f"{key.strip()} has the value {value} twice"
            raise PositionError(message, text=text, span=span, hint="write each value once")
        found[value] = span
        start += len(part) + len(separator)
    return key.strip(), found


def make_combinations(variations: Variations) -> tuple[Choices, ...]:
    """Return the product of all --vary, the last one varying fastest; () without any.

    Raises RequestError for more than LIMIT combinations.
    """
    axes: Sequence[list[tuple[str, str]]] = [[(key, text) for text in texts] for key, texts in variations]
    number = prod(map(len, axes))
    if number > LIMIT:
        hint = "vary fewer options at once, or fewer values"
        raise RequestError(f"--vary: {number} combinations are more than the limit of {LIMIT}", hint=hint)
    return tuple(product(*axes)) if axes else ()


# What to compare on a machine if nothing is chosen: machine × request → choices. Pure.
#
# Proposed are choices that change the plan and that often matter: kinds of cores, the hardware threads of
# each core, fewer threads if the program has a pool, threads that are bound one by one, memory on all NUMA
# nodes of a rank, and the distance between ranks. Numbers of ranks are proposed where candidates with
# different numbers can be compared. The numbers come first, then each single choice for all numbers, then
# pairs of choices about CPUs.


MOST = 12  # candidates at most, without the command without ompbind
_RANK_LEVELS = (Level.PACKAGE, Level.NODE, Level.L3)  # levels whose domains are a sensible number of ranks
_FEW_RANKS = (2, 4)  # numbers of ranks on a machine without several domains
_FEW_THREADS = (1, 2, 4)  # hardware threads of each core to use, besides all of them

_POOLS = (LibraryRole.RUNTIME, LibraryRole.BLAS)  # libraries that get their number of threads from ompbind

_Proposed: TypeAlias = tuple[tuple[str, object], ...]
"""The proposed options of one candidate, as (key, value) pairs; the key is the field of a request too."""


def make_proposal(
    machine: Machine, request: Request, fixed: Collection[str], plan: MakePlan = make_plan
) -> tuple[Choices, ...]:
    """Return the choices of at most MOST candidates, () if only the default plan makes sense.

    `fixed` are the keys of options that do not vary. The last choice is to wait passively, where another run
    has the same CPUs. Left out is what cannot be planned, has earlier placements, or exceeds the CPU quota.
    """
    seen: list[object] = []
    made: list[Choices] = []
    waiting: Choices = ()
    for choices in _list_proposed(machine, request, fixed):
        if len(made) == MOST:
            break
        try:
            fields = {key.replace("-", "_"): value for key, value in choices}
            planned = plan(machine, request.replace(**fields))
        except OmpbindError:
            continue
        interleaves = "memory" in dict(choices)
        has_remote_memory = any(len(placement.memory_nodes) > 1 for placement in planned.placements)
        if find_throttling(planned) or (interleaves and not has_remote_memory):
            continue
        found = [
            (placement.cpus, placement.places, placement.threads, placement.service_cpus, placement.memory)
            for placement in planned.placements
        ]
        if found not in seen:
            seen.append(found)
            made.append(tuple((key, str(value)) for key, value in choices))
            competes = "overlaps-run" in {note.code for note in planned.notes}
            if competes and not (waiting or request.sets_waiting):
                waiting = (*made[-1], ("env", "OMP_WAIT_POLICY=passive"))
    return (*made, waiting) if waiting else tuple(made)


def _list_proposed(machine: Machine, request: Request, fixed: Collection[str]) -> Iterator[_Proposed]:
    """Yield the choices of all candidates, the most important first; () is the default plan."""
    cpus = machine.default_cpus
    numbers = {1, *(len(machine.at(level, cpus)) for level in _RANK_LEVELS)} - {0}
    if numbers == {1}:
        numbers.update(_FEW_RANKS)
    cores = len(machine.at(Level.CORE, cpus))
    of_ranks = [(("ranks", number),) for number in sorted(numbers) if number <= cores]
    rows = []
    for number in [()] if "ranks" in fixed or request.names_each_rank else of_ranks:
        counted = request.replace(**dict(number))
        proposed = () if request.is_unbound else _list_singles(machine, counted)
        singles = [single for single in proposed if single[0] not in fixed]
        of_cpus = [single for single in singles if single[0] not in ("memory", "threads")]
        pairs = (pair for pair in combinations(of_cpus, 2) if pair[0][0] != pair[1][0])
        rows.append([(*number, *it) for it in chain([()], ((single,) for single in singles), pairs)])
    for column in zip_longest(*rows):
        yield from (choices for choices in column if choices is not None)


def _list_singles(machine: Machine, request: Request) -> Iterator[tuple[str, object]]:
    """Yield choices of single options, the most important first."""
    seen = [machine.online]
    choices: tuple[CoreChoice, ...] = ("performance", "cache", "fast")
    for choice in choices:
        if (cpus := machine.cpus_of_kind(choice)) not in seen:
            seen.append(cpus)
            yield ("core-kind", choice)
    threads = max((len(core.cpus & machine.allowed) for core in machine.at(Level.CORE)), default=1)
    yield ("smt", "all")
    yield from (("smt", few) for few in _FEW_THREADS if few < threads)
    yield from _list_thread_counts(machine, request)
    yield ("bind", Bind.THREAD)
    yield ("memory", MemoryMode.INTERLEAVE)
    if request.cores or request.threads:  # otherwise each strategy uses all cores
        yield from (("strategy", name) for name in ("compact", "spread"))


def _list_thread_counts(machine: Machine, request: Request) -> Iterator[tuple[str, object]]:
    """Yield one thread per rank, and half as many as the plan has, if the program has a pool."""
    libraries = request.workload.libraries if request.workload else ()
    if not any(found.library.kind.role in _POOLS for found in libraries):
        return
    with suppress(OmpbindError):
        most = max(placement.threads for placement in make_plan(machine, request).placements)
        yield from (("threads", few) for few in dict.fromkeys((1, most // 2)) if 0 < few < most)


def add_ranks(name: str, ranks: int) -> str:
    """Return a name with the number of ranks before it."""
    return f"{count(ranks, 'rank')}, {name}"


def drop_ranks(name: str, ranks: int | None) -> str:
    """Return a name without the number of ranks, for a text that is about this number only."""
    return name if ranks is None else name.removeprefix(add_ranks("", ranks))
