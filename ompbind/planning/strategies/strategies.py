"""The table of strategies, one record for each; and how domains are divided among ranks."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ompbind.cpuset import CpuSet, count
from ompbind.errors import PlanError
from ompbind.machine.model import Level, Machine
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence, group_cores, make_subsequence
from ompbind.planning.strategies.packing import divide_equally
from ompbind.planning.strategies.sized import RequestedCores, balance_requested, compact, cores, spread
from ompbind.record import Record

Divide: TypeAlias = Callable[[CoreSequence, int, RequestedCores | None], list[CoreIndices]]
"""Divides the cores of a sequence among a number of ranks, which may request a number of cores each."""

_SPLITTING = (Level.DRAWER, Level.BOOK, Level.PACKAGE)
"""The levels at which `find_numa_parts` splits NUMA nodes; the first that splits one is used."""


def find_numa_parts(sequence: CoreSequence) -> list[CoreIndices]:
    """Return the NUMA nodes; if a node has several drawers, books or packages, these parts of all nodes.

    Cores in no node are a domain of their own. "Packages" of different core kinds are no parts: Linux on Arm
    without ACPI reports the clusters of one chip as packages.
    """
    nodes = sequence.numbers(Level.NODE)
    whole = list(group_cores(nodes).values())
    for level in _SPLITTING:
        parts = list(group_cores(zip(nodes, sequence.numbers(level), strict=True)).values())
        if len(parts) > len(whole) and not (level is Level.PACKAGE and _differ_in_kind(sequence)):
            return parts
    return whole


def _differ_in_kind(sequence: CoreSequence) -> bool:
    """Return whether packages have different kinds of cores."""
    kinds: dict[int | None, set[int | None]] = {}
    for package, kind in zip(sequence.numbers(Level.PACKAGE), sequence.kind_numbers, strict=True):
        kinds.setdefault(package, set()).add(kind)
    return len(set(map(frozenset, kinds.values()))) > 1


def sort_by_node(machine: Machine, core_cpus: tuple[CpuSet, ...]) -> tuple[CpuSet, ...]:
    """Return the usable CPUs of each core, by the OS numbers of their NUMA nodes."""
    numbers = {cpu: node.number for node in machine.nodes for cpu in node.cpus}
    # lscpu shows node 0 where there are no nodes
    return tuple(sorted(core_cpus, key=lambda cpus: numbers.get(cpus.first, 0)))


def divide_domains(
    sequence: CoreSequence,
    ranks: int,
    requested: RequestedCores | None,
    domains: Sequence[CoreIndices],
    *,
    label: str,
    divide: Divide,
) -> list[CoreIndices]:
    """Give every rank one domain, or an equal share of one; ranks that request cores get these from one.

    `label` names a domain in messages; `divide` divides the cores of a domain with several ranks.
    """
    sizes = [len(cores) for cores in domains]
    distances = [sum(sequence.memory_distances[core] for core in cores) / len(cores) for cores in domains]
    counts = _count_ranks_per_domain(ranks, sizes, distances, requested.total if requested else 1)
    if requested and sum(counts) < ranks:
        largest = f"the largest {label} has {count(max(sizes), 'usable core')}"
        raise PlanError(
            f"{requested.describe(ranks)} do not fit, each in one {label}: {largest}",
            hint=requested.advise(sum(counts)),
        )
    return sorted(
        tuple(cores[core] for core in share)
        for cores, domain_ranks in zip(domains, counts, strict=True)
        if domain_ranks
        for share in divide(make_subsequence(sequence, cores), domain_ranks, requested)
    )


def _count_ranks_per_domain(
    ranks: int, sizes: Sequence[int], distances: Sequence[float], cores_per_rank: int
) -> list[int]:
    """Return how many ranks each domain gets, for domains of these sizes in cores.

    Each domain gets one rank, then every further rank goes to the domain where its share is largest. Among
    equal domains, those with the nearest memory are first: `distances` are the averages of their cores. A
    domain gets no more ranks than fit into it, so some ranks may be left over.
    """
    shares = sorted(
        (sharing > 1, -size / sharing if sharing > 1 else 0, distances[domain], domain)
        for domain, size in enumerate(sizes)
        for sharing in range(1, size // cores_per_rank + 1)
    )
    counts = [0] * len(sizes)
    for *_, domain in shares[:ranks]:
        counts[domain] += 1
    return counts


def _one_per_node(sequence: CoreSequence, requested: RequestedCores | None) -> int:
    return max(1, len(sequence.domains(Level.NODE)))


def _as_many_as_fit(sequence: CoreSequence, requested: RequestedCores | None) -> int:
    if not requested:
        return _one_per_node(sequence, requested)
    return max(1, len(sequence.core_cpus) // requested.total)


class Strategy(Record):
    """One way to divide cores among ranks, and its texts; `summary` completes "every rank gets …".

    `divide` is called with the core sequence, the number of ranks, and the cores that each rank requests
    (None if none are requested); it returns the cores of each rank, and ranks follow each other in the order
    of the machine, unless they overlap. With devices it is called for each group of cores near some.
    `auto_ranks` returns the number of ranks for `-n auto`, from the sequence and the same request; `label`
    explains that number. `takes_cores` is where ranks are that request cores with --cores, "" if the strategy
    fixes their size itself. A `sized` strategy gives every rank the cores that its threads need, and leaves
    the others idle. An `overlapping` one gives the same cores to several ranks. One with a `level` gives each
    rank a domain of that level. One `by_os_number` uses NUMA nodes in the order of their OS numbers, not in
    the order of the machine. `fewest_crossings` is True if no other equal shares have fewer ranks across
    domain boundaries. One with `takes_devices` can divide the cores near a device; the others choose domains
    themselves.
    """

    divide: Divide
    summary: str
    auto_ranks: Callable[[CoreSequence, RequestedCores | None], int] = _one_per_node
    label: str = f"one per {Level.NODE.label}"
    takes_cores: str = ""
    sized: bool = False
    overlapping: bool = False
    level: Level | None = None
    by_os_number: bool = False
    fewest_crossings: bool = False
    takes_devices: bool = False


def balanced(
    sequence: CoreSequence, ranks: int, requested: RequestedCores | None = None
) -> list[CoreIndices]:
    """Return an equal share of all cores for every rank, with the fewest ranks across domain boundaries.

    Among equally good shares, ranks use the fewest domains. Shares differ by at most one core. Ranks that
    request cores get these, compute cores first, from an equal share or from positions far apart.
    """
    if requested:
        return balance_requested(sequence, ranks, requested, balanced)
    if ranks == 1:
        return all_cores(sequence, ranks, requested)
    return divide_equally(sequence, ranks)


def _make_divide(find_domains: Callable[[CoreSequence], Sequence[CoreIndices]], label: str) -> Divide:
    """Return the strategy that gives every rank one domain, or an equal share of one."""
    return lambda sequence, ranks, requested: divide_domains(
        sequence, ranks, requested, find_domains(sequence), label=label, divide=balanced
    )


def all_cores(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
    """Give every rank all cores: the only strategy that overlaps."""
    return [tuple(range(len(sequence.core_cpus)))] * ranks


def _by_domain(level: Level) -> Strategy:
    return Strategy(
        divide=_make_divide(lambda sequence: sequence.domains(level), level.label),
        summary=f"one {level.label}, or an equal share of one",
        auto_ranks=lambda sequence, requested: len(sequence.domains(level)),
        label=f"one per {level.label}",
        takes_cores=f"in one {level.label}",
        level=level,
    )


STRATEGIES: Mapping[str, Strategy] = {
    "balanced": Strategy(
        divide=balanced,
        summary="an equal share of all cores, not split across domains unless unavoidable",
        auto_ranks=_as_many_as_fit,
        takes_cores="not split across domains unless unavoidable",
        fewest_crossings=True,
        takes_devices=True,
    ),
    "compact": Strategy(
        divide=compact,
        summary="as many cores as its threads need, or an equal share, packed from the start of the machine",
        auto_ranks=_as_many_as_fit,
        takes_cores="packed from the start of the machine",
        sized=True,
        takes_devices=True,
    ),
    "spread": Strategy(
        divide=spread,
        summary="as many cores as its threads need, or an equal share, as far from other ranks as possible",
        auto_ranks=_as_many_as_fit,
        takes_cores="as far from other ranks as possible",
        sized=True,
        takes_devices=True,
    ),
    "nodes": _by_domain(Level.NODE),
    "packages": _by_domain(Level.PACKAGE),
    "numa": Strategy(
        divide=_make_divide(find_numa_parts, "NUMA node or package"),
        summary="one NUMA node, by OS number, or one package (s390x: drawer, book) of nodes with several",
        auto_ranks=lambda sequence, requested: len(find_numa_parts(sequence)),
        label="one per NUMA node, or per package of nodes with several",
        takes_cores="in one NUMA node, or in one package of nodes with several",
        by_os_number=True,
    ),
    "l3": _by_domain(Level.L3),
    "l2": _by_domain(Level.L2),
    "books": _by_domain(Level.BOOK),
    "drawers": _by_domain(Level.DRAWER),
    "cores": Strategy(
        divide=cores,
        summary="one core",
        auto_ranks=lambda sequence, requested: len(sequence.core_cpus),
        label="one per core",
    ),
    "all": Strategy(
        divide=all_cores,
        summary="all cores, shared with all other ranks",
        auto_ranks=lambda sequence, requested: 1,
        label="all ranks would get the same CPUs",
        overlapping=True,
    ),
}
"""The strategies by their names on the command line."""


def list_others_that_take_cores(name: str) -> str:
    """Return the strategies that take --cores if the given strategy does not, else ""."""
    usable = [known for known, strategy in STRATEGIES.items() if strategy.takes_cores]
    return "" if name in usable else ", ".join(usable)


def list_others_that_take_devices(name: str) -> str:
    """Return the strategies to use with --devices if the given strategy chooses domains itself, else ""."""
    usable = [known for known, strategy in STRATEGIES.items() if strategy.takes_devices]
    return "" if name in usable else ", ".join(usable)


def check_strategy(sequence: CoreSequence, name: str) -> None:
    """Raise PlanError if a strategy divides domains of a level that the machine does not have."""
    level = STRATEGIES[name].level
    if level is None or sequence.domains(level):
        return
    usable = [
        known
        for known, strategy in STRATEGIES.items()
        if strategy.level is None or sequence.domains(strategy.level)
    ]
    raise PlanError(f"this machine has no {level} domains", hint=f"use {', '.join(usable)}")
