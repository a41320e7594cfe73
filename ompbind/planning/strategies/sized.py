"""Ranks of a given size, which leave other cores idle.

The strategies first find every position for a rank of that size with `pack_ranks`. The ranks then use the
positions with the highest scores, that is, with the fewest crossed boundaries. `compact` and `spread` differ
only in which of the equally good positions they use. Cores with remote memory are left out before, as far as
the other cores are enough.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ompbind.cpuset import count, join_words
from ompbind.errors import PlanError
from ompbind.planning.strategies.core_sequence import (
    PRIORITY,
    CoreIndices,
    CoreSequence,
    LevelRanges,
    find_levels,
    find_nearest_memory,
    make_subsequence,
)
from ompbind.planning.strategies.packing import pack_ranks
from ompbind.planning.strategies.shapes import RankSizes
from ompbind.record import Record

# Cores that ranks request: cores that compute, and other cores near them, for service threads or reserved.
#
# The compute cores decide about the boundaries that a rank crosses. So there are two ways to place ranks
# with other cores: whole ranks first, or compute cores first and then the nearest free cores. Example: NUMA
# nodes of 4 cores, and 3 ranks with 4 compute cores and 1 service core each:
#
#     cores                   0–3       4–7       8–11      12–15
#     whole ranks first       0 0 0 0   0 1 1 1   1 1 2 2   2 2 2     compute cores of ranks 1 and 2 cross
#     compute cores first     0 0 0 0   1 1 1 1   2 2 2 2   0 1 2     no compute core crosses
#
# `measure_shares` compares the two.


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
    in_one_domain = (window for window in windows if max(_count_domains(sequence, window)) == 1)
    compute = next(in_one_domain, None) or min(
        windows, key=lambda window: measure_shares(sequence, [window], requested.compute)
    )
    used = [(numbers, {numbers[core] for core in compute}) for _, numbers in sequence.domain_numbers]
    others = sorted(
        set(cores).difference(compute),
        key=lambda core: ([numbers[core] not in near for numbers, near in used], core),
    )
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


_Choose: TypeAlias = Callable[[Sequence[LevelRanges], list[CoreIndices], int], list[CoreIndices]]
"""Chooses a number of equally good positions, for these levels of domains."""


def balance_requested(
    sequence: CoreSequence,
    ranks: int,
    requested: RequestedCores,
    divide: Callable[[CoreSequence, int], list[CoreIndices]],
) -> list[CoreIndices]:
    """Return the requested cores for every rank: from an equal share, or from positions far apart.

    `divide` returns equal shares of all cores.
    """

    def place(part: CoreSequence) -> list[CoreIndices]:
        far_apart = spread(part, ranks, requested)
        if all(max(_count_domains(part, cores)) == 1 for cores in far_apart):
            return far_apart  # no share can be in fewer domains
        shares = sorted(take_cores(part, share, requested) for share in divide(part, ranks))
        return min((far_apart, shares), key=lambda way: measure_shares(part, way, requested.compute))

    return _use_nearest_memory(sequence, ranks * requested.total, place)


def compact(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
    """Pack ranks from the start of the machine; as few as possible for their size cross domain boundaries."""
    return _place_ranks(sequence, ranks, requested, lambda _, positions, left: positions[:left])


def spread(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
    """Place ranks as far apart as possible; as few as possible for their size cross domain boundaries."""
    return _place_ranks(sequence, ranks, requested, _choose_far_apart)


def cores(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
    """Give every rank one core, from the start of the machine; `requested` is ignored."""
    return compact(sequence, ranks, RequestedCores(compute=1))


def _place_ranks(
    sequence: CoreSequence, ranks: int, requested: RequestedCores | None, choose: _Choose
) -> list[CoreIndices]:
    """Return the cores of every rank as requested, compute cores first, or else the largest equal share."""
    size = requested or RequestedCores(compute=len(sequence.core_cpus) // ranks)
    _check_size(sequence, ranks, size)

    def place(part: CoreSequence) -> list[CoreIndices]:
        whole = _place_equal(part, ranks, size.total, choose)
        if not size.others:
            return whole
        whole = [take_cores(part, cores, size) for cores in whole]
        compute = _place_equal(part, ranks, size.compute, choose)
        ways = [whole, add_nearest(part, compute, size.others)]
        best = min(ways, key=lambda shares: measure_shares(part, shares, size.compute))
        return sorted(best)

    return _use_nearest_memory(sequence, ranks * size.total, place)


def _use_nearest_memory(
    sequence: CoreSequence, cores: int, place: Callable[[CoreSequence], list[CoreIndices]]
) -> list[CoreIndices]:
    """Place ranks that need so many cores on the cores with the nearest memory."""
    usable = find_nearest_memory(sequence, cores)
    if len(usable) == len(sequence.core_cpus):
        return place(sequence)
    return [tuple(usable[core] for core in share) for share in place(make_subsequence(sequence, usable))]


def _place_equal(sequence: CoreSequence, ranks: int, size: int, choose: _Choose) -> list[CoreIndices]:
    """Return positions for ranks of one size with the fewest crossings; `choose` selects among equals."""
    is_hybrid = len(set(sequence.kind_numbers)) > 1
    sizes = RankSizes(large=size)
    positions = pack_ranks(sequence, sizes, ignore_unavoidable=is_hybrid)
    min_score = sorted(positions.values())[-ranks]
    if min(positions.values()) < min_score:
        positions = pack_ranks(sequence, sizes, ignore_unavoidable=is_hybrid, min_score=min_score)
    best = [indices for indices, score in positions.items() if score > min_score]
    others = [indices for indices, score in positions.items() if score == min_score]
    return sorted([*best, *choose(find_levels(sequence), others, ranks - len(best))])


def _choose_far_apart(
    levels: Sequence[LevelRanges], positions: Sequence[CoreIndices], ranks: int
) -> list[CoreIndices]:
    """Choose `ranks` of the positions so that neighbouring ranks are far apart, level by level.

    At the first level with a domain for each rank, no domain gets two ranks. At larger levels each domain
    gets the same number of ranks, as far as its smaller domains allow.
    """
    if not levels or ranks in (0, len(positions)):
        return [positions[i * len(positions) // ranks] for i in range(ranks)]
    groups = _group_by_range(levels[0], positions)
    smaller = (level for level in levels[1:] if len(_group_by_range(level, positions)) >= ranks)
    enough = levels[0] if len(groups) >= ranks else next(smaller, None)
    capacities = [
        len(_group_by_range(enough, group)) if enough and ranks > 1 else len(group) for group in groups
    ]
    return [
        indices
        for group, group_ranks in zip(groups, _deal_ranks(ranks, capacities), strict=True)
        for indices in _choose_far_apart(levels[1:], group, group_ranks)
    ]


def _group_by_range(level: LevelRanges, positions: Sequence[CoreIndices]) -> list[list[CoreIndices]]:
    """Group positions by the range in which they start; positions between two ranges form a group."""
    starts = [start for start, _ in level.ranges] + [len(level.range_at)]
    groups: dict[tuple[int, bool], list[CoreIndices]] = {}
    for indices in positions:
        index = level.range_at[indices[0]]
        groups.setdefault((index, starts[index] <= indices[0]), []).append(indices)
    return list(groups.values())


def _deal_ranks(ranks: int, capacities: Sequence[int]) -> list[int]:
    """Return how many ranks each group gets: each rank goes to the group with the fewest, up to its capacity.

    The sum of the capacities must be at least `ranks`.
    """
    counts = [0] * len(capacities)
    while left := ranks - sum(counts):
        fewest = min(dealt for dealt, most in zip(counts, capacities, strict=True) if dealt < most)
        chosen = [i for i, dealt in enumerate(counts) if dealt == fewest and dealt < capacities[i]]
        for i in chosen[:left]:
            counts[i] += 1
    return counts


def _check_size(sequence: CoreSequence, ranks: int, requested: RequestedCores) -> None:
    """Raise PlanError if the ranks do not fit on the cores."""
    available = len(sequence.core_cpus)
    if requested.total * ranks > available:
        need = "needs" if ranks == 1 else "need"
        usable = "1 is" if available == 1 else f"{available} are"
        cores = count(requested.total * ranks, "core")
        raise PlanError(
            f"{requested.describe(ranks)} {need} {cores}, but {usable} usable",
            hint=requested.advise(available // requested.total),
        )
