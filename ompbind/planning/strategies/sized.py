"""Ranks of a given size, next to each other or far apart; the other cores are idle.

All three strategies first find every position for a rank of that size with `pack_ranks`. The ranks then use
the positions with the highest scores, that is, with the fewest crossed boundaries. `compact` and `spread`
differ only in which of the equally good positions they use.
"""

from collections.abc import Sequence

from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence, LevelRanges
from ompbind.planning.strategies.packing import pack_ranks
from ompbind.planning.strategies.shapes import RankSizes


def compact(sequence: CoreSequence, ranks: int, cores_per_rank: int | None) -> list[CoreIndices]:
    """Pack ranks from the start of the machine; as few as possible for their size cross domain boundaries."""
    best, next_best = _find_candidates(sequence, ranks, cores_per_rank)
    return sorted([*best, *next_best[: ranks - len(best)]])


def spread(sequence: CoreSequence, ranks: int, cores_per_rank: int | None) -> list[CoreIndices]:
    """Place ranks as far apart as possible; as few as possible for their size cross domain boundaries."""
    best, next_best = _find_candidates(sequence, ranks, cores_per_rank)
    return sorted([*best, *_choose_far_apart(sequence.levels, next_best, ranks - len(best))])


def cores(sequence: CoreSequence, ranks: int, cores_per_rank: int | None) -> list[CoreIndices]:
    """Give every rank one core, from the start of the machine; `cores_per_rank` is ignored."""
    return compact(sequence, ranks, 1)


def _find_candidates(
    sequence: CoreSequence, ranks: int, cores_per_rank: int | None
) -> tuple[list[CoreIndices], list[CoreIndices]]:
    """Return the positions that ranks must use to cross the fewest boundaries, and those to choose from."""
    size = RankSizes(large=_find_rank_size(len(sequence.core_cpus), ranks, cores_per_rank))
    is_hybrid = len(set(sequence.kind_numbers)) > 1
    min_score = sorted(pack_ranks(sequence, size, ignore_unavoidable=is_hybrid).values())[-ranks]
    positions = pack_ranks(sequence, size, ignore_unavoidable=is_hybrid, min_score=min_score)
    best = [indices for indices, score in positions.items() if score > min_score]
    return best, [indices for indices, score in positions.items() if score == min_score]


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


def _find_rank_size(cores: int, ranks: int, cores_per_rank: int | None) -> int:
    """Return the cores of every rank: as requested, or else the largest equal share.

    Raises PlanError if the ranks do not fit on the cores.
    """
    size = cores_per_rank or cores // ranks
    if size * ranks > cores:
        fewer = f"at most {count(cores // size, 'rank')}, or " if cores >= size else ""
        available = "1 is" if cores == 1 else f"{cores} are"
        raise PlanError(
            f"{count(ranks, 'rank')} of {count(size, 'core')} need {size * ranks}, but {available} usable",
            hint=f"request {fewer}fewer threads with -t",
        )
    return size
