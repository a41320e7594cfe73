"""Ranks of a given size, which leave other cores idle.

The strategies first find every position for a rank of that size with `pack_ranks`. The ranks then use the
positions with the highest scores, that is, with the fewest crossed boundaries. `compact` and `spread` differ
only in which of the equally good positions they use. Cores with remote memory are left out before, as far as
the other cores are enough.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.level_ranges import LevelRanges, find_levels
from ompbind.planning.strategies.packing import pack_ranks
from ompbind.planning.strategies.shapes import RankSizes
from ompbind.planning.strategies.shares import RequestedCores, add_nearest, measure_shares, take_cores
from ompbind.planning.strategies.subsequence import find_nearest_memory, make_subsequence

_Choose: TypeAlias = Callable[[Sequence[LevelRanges], list[CoreIndices], int], list[CoreIndices]]
"""Chooses a number of equally good positions, for these levels of domains."""

_DivideEqually: TypeAlias = Callable[[CoreSequence, int], list[CoreIndices]]
"""Divides all cores of a sequence equally among a number of ranks."""

_Place: TypeAlias = Callable[[CoreSequence], list[CoreIndices]]
"""Places ranks on a sequence."""


def balance_requested(
    sequence: CoreSequence, ranks: int, requested: RequestedCores, divide: _DivideEqually
) -> list[CoreIndices]:
    """Return the requested cores for every rank: from an equal share, or from positions far apart.

    `divide` returns equal shares of all cores.
    """

    def place(part: CoreSequence) -> list[CoreIndices]:
        far_apart = spread(part, ranks, requested)
        shares = sorted(take_cores(part, share, requested) for share in divide(part, ranks))
        return min((far_apart, shares), key=lambda way: measure_shares(part, way, requested.compute))

    return _use_nearest_memory(sequence, ranks * requested.total, place)


def compact(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
    """Pack ranks from the start of the machine; as few as possible for their size cross domain boundaries."""
    return _place(sequence, ranks, requested, lambda _, positions, left: positions[:left])


def spread(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
    """Place ranks as far apart as possible; as few as possible for their size cross domain boundaries."""
    return _place(sequence, ranks, requested, _choose_far_apart)


def cores(sequence: CoreSequence, ranks: int, requested: RequestedCores | None) -> list[CoreIndices]:
    """Give every rank one core, from the start of the machine; `requested` is ignored."""
    return compact(sequence, ranks, RequestedCores(compute=1))


def _place(
    sequence: CoreSequence, ranks: int, requested: RequestedCores | None, choose: _Choose
) -> list[CoreIndices]:
    """Return the cores of every rank as requested, compute cores first, or else the largest equal share."""
    requested = requested or RequestedCores(compute=len(sequence.core_cpus) // ranks)
    _check_size(sequence, ranks, requested)
    return _use_nearest_memory(
        sequence, ranks * requested.total, lambda part: _place_requested(part, ranks, requested, choose)
    )


def _use_nearest_memory(sequence: CoreSequence, cores: int, place: _Place) -> list[CoreIndices]:
    """Place ranks that need so many cores on the cores with the nearest memory."""
    usable = find_nearest_memory(sequence, cores)
    if len(usable) == len(sequence.core_cpus):
        return place(sequence)
    return [tuple(usable[core] for core in share) for share in place(make_subsequence(sequence, usable))]


def _place_requested(
    sequence: CoreSequence, ranks: int, requested: RequestedCores, choose: _Choose
) -> list[CoreIndices]:
    """Return the cores of every rank as requested, compute cores first."""
    whole = _place_equal(sequence, ranks, requested.total, choose)
    if not requested.others:
        return whole
    whole = [take_cores(sequence, cores, requested) for cores in whole]
    compute = _place_equal(sequence, ranks, requested.compute, choose)
    ways = [whole, add_nearest(sequence, compute, requested.others)]
    best = min(ways, key=lambda shares: measure_shares(sequence, shares, requested.compute))
    return sorted(best)


def _place_equal(sequence: CoreSequence, ranks: int, size: int, choose: _Choose) -> list[CoreIndices]:
    """Return positions for ranks of one size with the fewest crossings; `choose` selects among equals."""
    is_hybrid = len(set(sequence.kind_numbers)) > 1
    sizes = RankSizes(large=size)
    min_score = sorted(pack_ranks(sequence, sizes, ignore_unavoidable=is_hybrid).values())[-ranks]
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
    enough = next((level for level in levels if len(_group_by_range(level, positions)) >= ranks), None)
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
