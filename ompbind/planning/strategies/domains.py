"""One domain of a level for each rank, or an equal share of one."""

from collections.abc import Callable, Sequence

from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.machine.model import Level
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.shares import RequestedCores
from ompbind.planning.strategies.sized import balanced

_Divide = Callable[[CoreSequence, int, RequestedCores | None], list[CoreIndices]]


def divide_domains(level: Level) -> _Divide:
    """Return the strategy that gives every rank one domain of `level`, or an equal share of one.

    Ranks that request cores get these from one domain.
    """

    def by_domain(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
        domains = sequence.domains(level)
        sizes = [len(domain) for domain in domains]
        distances = [
            sum(sequence.memory_distances[core] for core in domain) / len(domain) for domain in domains
        ]
        counts = _count_ranks_per_domain(ranks, sizes, distances, requested.total if requested else 1)
        if requested and sum(counts) < ranks:
            largest = f"the largest {level.label} has {count(max(sizes), 'usable core')}"
            raise PlanError(
                f"{requested.describe(ranks)} do not fit, each in one {level.label}: {largest}",
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
