"""Cores that ranks request: cores that compute, and other cores near them, for service threads or reserved.

The compute cores decide about the boundaries that a rank crosses. So there are two ways to place ranks with
other cores: whole ranks first, or compute cores first and then the nearest free cores. Example: NUMA nodes of
4 cores, and 3 ranks with 4 compute cores and 1 service core each:

    cores                   0–3       4–7       8–11      12–15
    whole ranks first       0 0 0 0   0 1 1 1   1 1 2 2   2 2 2     compute cores of ranks 1 and 2 cross
    compute cores first     0 0 0 0   1 1 1 1   2 2 2 2   0 1 2     no compute core crosses

`measure_shares` compares the two.
"""

from collections.abc import Sequence

from ompbind.cpuset import count, join_words
from ompbind.planning.strategies.core_sequence import PRIORITY, CoreIndices, CoreSequence
from ompbind.record import Record


class RequestedCores(Record):
    """The cores that each rank requests: `compute` cores, and others near them.

    `remedy` is what an error recommends if they do not fit, as in "fewer threads with -t".
    """

    compute: int
    service: int = 0
    reserved: int = 0
    remedy: str = ""

    @property
    def others(self) -> int:
        """The cores of a rank that do not compute."""
        return self.service + self.reserved

    @property
    def total(self) -> int:
        """All cores of a rank."""
        return self.compute + self.others

    def describe(self, ranks: int) -> str:
        """Describe ranks of this size: "2 ranks of 4 cores and 1 service core"."""
        kinds = (("service core", self.service), ("reserved core", self.reserved))
        cores = (count(number, noun) for noun, number in (("core", self.compute), *kinds) if number)
        return f"{count(ranks, 'rank')} of {join_words(cores)}"

    def advise(self, ranks: int) -> str:
        """Return the hint if only so many ranks fit."""
        fewer_ranks = f"at most {count(ranks, 'rank')}, or " if ranks else ""
        return f"request {fewer_ranks}{self.remedy}"


def take_cores(sequence: CoreSequence, cores: CoreIndices, requested: RequestedCores) -> CoreIndices:
    """Take the requested cores out of some: compute cores in the fewest domains first, then the nearest.

    `cores` are in ascending order, and at least as many as requested.
    """
    starts = range(len(cores) - requested.compute + 1)
    windows = [cores[start : start + requested.compute] for start in starts]
    compute = min(windows, key=lambda window: measure_shares(sequence, [window], requested.compute))
    used = [(numbers, {numbers[core] for core in compute}) for _, numbers in sequence.domain_numbers]

    def find_distance(core: int) -> list[bool]:
        return [numbers[core] not in near for numbers, near in used]

    others = sorted(set(cores).difference(compute), key=lambda core: (find_distance(core), core))
    return *compute, *others[: requested.others]


def add_nearest(sequence: CoreSequence, ranks: Sequence[CoreIndices], others: int) -> list[CoreIndices]:
    """Add `others` of the free cores to each rank, from the smallest of its domains that has some."""
    shares = [list(compute) for compute in ranks]
    machine = (0,) * len(sequence.core_cpus)
    for numbers in (*(numbers for _, numbers in reversed(sequence.domain_numbers)), machine):
        nearby: dict[int | None, list[int]] = {}
        for core in sorted(set(range(len(machine))).difference(*shares), reverse=True):
            nearby.setdefault(numbers[core], []).append(core)
        for share, compute in zip(shares, ranks, strict=True):
            for number in dict.fromkeys(numbers[core] for core in compute):
                while number is not None and nearby.get(number) and len(share) < len(compute) + others:
                    share.append(nearby[number].pop())
    return [tuple(share) for share in shares]


def measure_shares(
    sequence: CoreSequence, shares: Sequence[CoreIndices], compute: int
) -> tuple[tuple[int, ...], ...]:
    """Measure shares of ranks, most important number first; lower is better.

    The numbers are how many ranks have their first `compute` cores in several domains, for each level; then
    in how many domains these cores are, and all cores, summed over all ranks.
    """
    counted = [_count_domains(sequence, share[:compute]) for share in shares]
    whole = [_count_domains(sequence, share) for share in shares]
    crossing = tuple(sum(used > 1 for used in level) for level in zip(*counted, strict=True))
    return crossing, *(tuple(map(sum, zip(*counts, strict=True))) for counts in (counted, whole))


def _count_domains(sequence: CoreSequence, cores: CoreIndices) -> list[int]:
    """Return how many domains some cores are in, the most important level first, and core kinds last."""
    by_priority = sorted(sequence.domain_numbers, key=lambda level: PRIORITY.index(level[0]))
    by_level = (*(numbers for _, numbers in by_priority), sequence.kind_numbers)
    return [len({numbers[core] for core in cores}) for numbers in by_level]
