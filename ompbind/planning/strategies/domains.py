"""One domain of a level for each rank, or an equal share of one."""

from collections.abc import Callable, Sequence

from ompbind.machine.model import Level
from ompbind.planning.strategies.balanced import balanced
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence


def divide_domains(level: Level) -> Callable[[CoreSequence, int, int | None], list[CoreIndices]]:
    """Return the strategy that gives every rank one domain of `level`, or an equal share of one."""

    def by_domain(sequence: CoreSequence, ranks: int, cores_per_rank: int | None) -> list[CoreIndices]:
        domains = sequence.domains(level)
        counts = _count_ranks_per_domain(ranks, [len(domain) for domain in domains])
        return sorted(
            tuple(domain[core] for core in share)
            for domain, domain_ranks in zip(domains, counts, strict=True)
            if domain_ranks
            for share in balanced(sequence.subsequence(domain), domain_ranks)
        )

    return by_domain


def _count_ranks_per_domain(ranks: int, sizes: Sequence[int]) -> list[int]:
    """Return how many ranks each domain gets, for domains of these sizes in cores.

    Each domain gets one rank, then every further rank goes to the domain where its share is largest.
    There must be at least as many cores as ranks.
    """
    counts = [int(domain < ranks) for domain in range(len(sizes))]
    shares = sorted((-size / sharing, i) for i, size in enumerate(sizes) for sharing in range(2, size + 1))
    for _, domain in shares[: ranks - sum(counts)]:
        counts[domain] += 1
    return counts
