"""One domain for each rank, or an equal share of one."""

from __future__ import annotations

from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.machine.model import Level
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.shares import RequestedCores
from ompbind.planning.strategies.sized import balanced

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

_Divide: TypeAlias = "Callable[[CoreSequence, int, RequestedCores | None], list[CoreIndices]]"
_FindDomains: TypeAlias = "Callable[[CoreSequence], Sequence[CoreIndices]]"

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


def divide_domains(find_domains: _FindDomains, label: str) -> _Divide:
    """Return the strategy that gives every rank one domain, or an equal share of one.

    `label` names a domain in messages. Ranks that request cores get these from one domain.
    """

    def by_domain(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
        domains = find_domains(sequence)
        sizes = [len(domain) for domain in domains]
        distances = [
            sum(sequence.memory_distances[core] for core in domain) / len(domain) for domain in domains
        ]
        counts = _count_ranks_per_domain(ranks, sizes, distances, requested.total if requested else 1)
        if requested and sum(counts) < ranks:
            largest = f"the largest {label} has {count(max(sizes), 'usable core')}"
            raise PlanError(
                f"{requested.describe(ranks)} do not fit, each in one {label}: {largest}",
                hint=requested.advise(sum(counts)),
            )
        return sorted(
            tuple(domain[core] for core in share)
            for domain, domain_ranks in zip(domains, counts, strict=True)
            if domain_ranks
            for share in balanced(sequence.subsequence(domain), domain_ranks, requested)
        )

    return by_domain


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
