"""One domain of a level for each rank, or an even share of one."""

from collections.abc import Callable, Sequence

from ompbind.machine.model import Level
from ompbind.planning.strategies.balanced import balanced
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence


def divide_domains(level: Level) -> Callable[[CoreSequence, int, int | None], list[CoreIndices]]:
    """Make the function that gives every rank one domain of `level`, or an even share of one."""

    def one_domain(sequence: CoreSequence, ranks: int, units: int | None) -> list[CoreIndices]:
        domains = sequence.domains(level)
        counts = _host(ranks, [len(domain) for domain in domains])
        return sorted(
            tuple(domain[at] for at in share)
            for domain, mine in zip(domains, counts, strict=True)
            if mine
            for share in balanced(sequence.narrowed(domain), mine)
        )

    return one_domain


def _host(ranks: int, sizes: Sequence[int]) -> list[int]:
    """Return how many ranks each domain hosts: one each, then one more where shares stay the largest.

    There must be as many units as ranks at least.
    """
    counts = [int(i < ranks) for i in range(len(sizes))]
    offers = sorted((-size / mine, i) for i, size in enumerate(sizes) for mine in range(2, size + 1))
    for _, i in offers[: ranks - sum(counts)]:
        counts[i] += 1
    return counts
