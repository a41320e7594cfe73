"""The domains of every level of a core sequence as core ranges.

The cores of a domain are usually one *range* of indices. For 2 packages with 2 L3s each, and 2 cores in each
L3:

    core        0   1 | 2   3 | 4   5 | 6   7
    packages    [0, 4)        | [4, 8)
    L3s         [0, 2)| [2, 4)| [4, 6)| [6, 8)

A domain whose cores are not adjacent has several ranges.
"""

from itertools import groupby

from ompbind.planning.strategies.core_sequence import PRIORITY, CoreSequence, DomainNumbers
from ompbind.record import Record

CoreRange = tuple[int, int]
"""Adjacent cores of a sequence: the first index, and the index after the last one."""


class LevelRanges(Record):
    """The core ranges of one level, or of the core kinds, in ascending order.

    `priority` is the index of the level in PRIORITY, 0 is the most important. `range_at` has for every core
    the index of the range that holds it, or else of the next range.
    """

    priority: int
    ranges: tuple[CoreRange, ...]
    range_at: tuple[int, ...]

    @property
    def largest(self) -> int:
        """The number of cores in the largest range."""
        return max(stop - start for start, stop in self.ranges)


def find_levels(sequence: CoreSequence) -> tuple[LevelRanges, ...]:
    """Return the levels that have a range of several cores, largest ranges first.

    Core kinds are among them, unless they partially overlap domains.
    """
    levels = [
        _make_level_ranges(PRIORITY.index(level), numbers) for level, numbers in sequence.domain_numbers
    ]
    kinds = _make_level_ranges(len(PRIORITY), sequence.kind_numbers)
    if not any(_has_partial_overlap(kinds, level) for level in levels):
        levels.append(kinds)
    useful = [level for level in levels if level.ranges and level.largest > 1]
    useful.sort(key=lambda level: (-level.largest, len(level.ranges), level.priority))
    return tuple(useful)


def _has_partial_overlap(level: LevelRanges, other: LevelRanges) -> bool:
    """Return whether a range of `level` starts or stops inside a range of `other` that does not hold it."""
    for start, stop in level.ranges:
        for bound in (start, stop):
            index = other.range_at[bound] if bound < len(other.range_at) else len(other.ranges)
            low, high = other.ranges[index] if index < len(other.ranges) else (bound, bound)
            if low < bound and not (low <= start and stop <= high):
                return True
    return False


def _make_level_ranges(priority: int, numbers: DomainNumbers) -> LevelRanges:
    """Return the ranges of adjacent cores that have the same domain number."""
    ranges: list[CoreRange] = []
    range_at: list[int] = []
    for number, cores in groupby(numbers):
        start, size = len(range_at), len(list(cores))
        range_at.extend([len(ranges)] * size)
        if number is not None:
            ranges.append((start, start + size))
    return LevelRanges(priority=priority, ranges=tuple(ranges), range_at=tuple(range_at))


def split_range(level: LevelRanges, outer: CoreRange) -> list[CoreRange]:
    """Split `outer` at the boundaries of a level; cores in no domain form ranges too."""
    pieces: list[CoreRange] = []
    position, end = outer
    for start, stop in level.ranges[level.range_at[position] : level.range_at[end - 1] + 1]:
        if position < start:
            pieces.append((position, min(start, end)))
        if start < end:
            pieces.append((max(start, position), min(stop, end)))
        position = pieces[-1][1]
    return [*pieces, (position, end)] if position < end else pieces
