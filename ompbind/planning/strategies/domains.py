"""One domain for each rank, or an equal share of one."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ompbind.cpuset import CpuSet, count
from ompbind.errors import PlanError
from ompbind.machine.model import Level, Machine
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence, group_cores, make_subsequence
from ompbind.planning.strategies.sized import RequestedCores

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
