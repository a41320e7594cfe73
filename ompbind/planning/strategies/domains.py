"""One domain for each rank, or an equal share of one."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from ompbind.cpuset import CpuSet, count
from ompbind.errors import PlanError
from ompbind.machine.model import Level, Machine
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence, make_subsequence
from ompbind.planning.strategies.sized import RequestedCores
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
    whole = _group_cores(nodes)
    levels = [level for level in _SPLITTING if level is not Level.PACKAGE or not _differ_in_kind(sequence)]
    ways = (_group_cores(zip(nodes, sequence.numbers(level), strict=True)) for level in levels)
    return next((parts for parts in ways if len(parts) > len(whole)), whole)


def _differ_in_kind(sequence: CoreSequence) -> bool:
    """Return whether packages have different kinds of cores."""
    kinds: dict[int | None, set[int | None]] = {}
    for package, kind in zip(sequence.numbers(Level.PACKAGE), sequence.kind_numbers, strict=True):
        kinds.setdefault(package, set()).add(kind)
    return len(set(map(frozenset, kinds.values()))) > 1


def _group_cores(keys: Iterable[object]) -> list[CoreIndices]:
    """Return the cores with equal keys, for the keys of all cores, in the order of their first cores."""
    found: dict[object, list[int]] = {}
    for core, key in enumerate(keys):
        found.setdefault(key, []).append(core)
    return [*map(tuple, found.values())]


def sort_by_node(machine: Machine, core_cpus: tuple[CpuSet, ...]) -> tuple[CpuSet, ...]:
    """Return the usable CPUs of each core, by the OS numbers of their NUMA nodes."""
    numbers = {cpu: node.number for node in machine.nodes for cpu in node.cpus}
    # lscpu shows node 0 where there are no nodes
    return tuple(sorted(core_cpus, key=lambda cpus: numbers.get(cpus.first, 0)))


class Domains(Record):
    """The domains that a strategy gives to ranks; `label` names one of them in messages.

    `divide` divides the cores of a domain with several ranks.
    """

    cores: Sequence[CoreIndices]
    label: str
    divide: Divide


def divide_domains(
    sequence: CoreSequence, ranks: int, requested: RequestedCores | None, domains: Domains
) -> list[CoreIndices]:
    """Give every rank one domain, or an equal share of one; ranks that request cores get these from one."""
    sizes = [len(cores) for cores in domains.cores]
    distances = [
        sum(sequence.memory_distances[core] for core in cores) / len(cores) for cores in domains.cores
    ]
    counts = _count_ranks_per_domain(ranks, sizes, distances, requested.total if requested else 1)
    if requested and sum(counts) < ranks:
        largest = f"the largest {domains.label} has {count(max(sizes), 'usable core')}"
        raise PlanError(
            f"{requested.describe(ranks)} do not fit, each in one {domains.label}: {largest}",
            hint=requested.advise(sum(counts)),
        )
    return sorted(
        tuple(cores[core] for core in share)
        for cores, domain_ranks in zip(domains.cores, counts, strict=True)
        if domain_ranks
        for share in domains.divide(make_subsequence(sequence, cores), domain_ranks, requested)
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
