"""The best scores of shapes: how many small ranks each half gets, and in which order halves are used.

`packing` says what is counted. A shape is scored for every number of small ranks that it can have. If a rank
that started before the shape ends inside it, it is scored again for each number of cores that this rank uses
there, because small domains may be full together up to that core.
"""

from collections.abc import Iterator
from operator import add

from ompbind.planning.strategies.shapes import ShapeTree

SMALL_RANKS_LIMIT = 1 << 12
"""Combinations of small ranks in two halves that are all tried; of more, only the sum of scores is."""

BestScores = tuple[int, ...]
"""The best score of a shape for no small rank, one, two, and so on."""

Split = tuple[int, int, bool, int, int]
"""A way to give small ranks to halves; the highest is the best.

It consists of the score, minus the index of the halves, whether no core of the first half is free, the small
ranks of the second half, and minus the small ranks of both halves.
"""


class ShapeScores:
    """The best scores of the shapes of a tree."""

    def __init__(self, tree: ShapeTree) -> None:
        self.shapes, self.halves, self.ranks = tree.shapes, tree.halves, tree.ranks
        self.best_scores: list[BestScores] = []
        self.head_scores: dict[tuple[int, int, int], int] = {}
        for number in range(len(self.shapes) - 1):  # the small ranks of the last one, the root, are given
            self.best_scores.append(self.find_best_scores(number))

    def find_best_scores(self, number: int) -> BestScores:
        """Return the best scores of a shape: its halves together, plus the ranks that fit in it."""
        most = self.ranks.most_small(self.shapes[number].size)
        if not self.halves[number]:
            inside: tuple[int, ...] = (0,) * (most + 1)
        elif self.is_large(number):
            _, first, second = self.halves[number][0]
            inside = _combine(self.best_scores[first], self.best_scores[second], most)
            inside += inside[-1:]  # one more small rank may cross
        else:
            splits = (max(self.find_splits(number, small, 0)) for small in range(most + 1))
            inside = tuple(score for score, *_ in splits)
        return tuple(inside[small] + self.score_shape(number, small) for small in range(most + 1))

    def is_large(self, number: int) -> bool:
        """Return whether a shape can have so many small ranks that only their numbers are compared."""
        _, first, second = self.halves[number][0]
        return len(self.best_scores[first]) * len(self.best_scores[second]) > SMALL_RANKS_LIMIT

    def score_shape(self, number: int, small_ranks: int) -> int:
        """Return the score of the ranks inside a shape at its own levels."""
        shape = self.shapes[number]
        full_score = 0 if self.count_free(number, small_ranks) else shape.full_score
        return shape.score * self.count_ranks(number, small_ranks) + full_score

    def count_ranks(self, number: int, small_ranks: int) -> int:
        """Return how many whole ranks fit into a shape if `small_ranks` of them are small."""
        return self.ranks.count(self.shapes[number].size, small_ranks)

    def count_free(self, number: int, small_ranks: int) -> int:
        """Return how many cores of a shape are left free then."""
        return self.ranks.count_free(self.shapes[number].size, small_ranks)

    def find_score(self, number: int, small_ranks: int, head: int) -> int:
        """Return the best score of a shape if another rank ends after its first `head` free cores."""
        is_cut = 0 < head < self.count_free(number, small_ranks)
        if not is_cut or not self.halves[number] or self.is_large(number):
            return self.best_scores[number][small_ranks]
        key = number, small_ranks, head
        if key not in self.head_scores:
            tail = self.count_free(number, small_ranks) - head
            sides = (max(self.find_splits(number, small_ranks, side)) for side in (head, tail))
            self.head_scores[key] = max(sides)[0] + self.score_shape(number, small_ranks)
        return self.head_scores[key]

    def find_splits(self, number: int, small_ranks: int, head: int) -> Iterator[Split]:
        """Yield the ways to give the small ranks of a shape to its halves, with their scores.

        The first `head` free cores are for a rank that started before this shape.
        """
        inner_full_score = self.shapes[number].inner_full_score
        is_full = not self.count_free(number, small_ranks)
        for index, total, in_second, crossing in self.divide_small_ranks(number, small_ranks):
            _, first, second = self.halves[number][index]
            free = self.count_free(first, total - in_second)
            free_second = self.count_free(second, in_second)
            if free + free_second < crossing:
                if total < small_ranks:
                    continue
                crossing = 0
            end = head + crossing if head <= free and crossing else head
            score = self.find_score(first, total - in_second, min(head, free))
            score += self.find_score(second, in_second, min(max(end - free, 0), free_second))
            if free and free_second and (is_full or head == free):
                score += inner_full_score
            yield score, -index, free == 0, in_second, -total

    def divide_small_ranks(self, number: int, small_ranks: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (index of the halves, small ranks in both, in the second, size of a rank across both).

        At most one rank needs free cores of both halves. The halves get one small rank less if it is small.
        """
        for index, (_, first, second) in enumerate(self.halves[number]):
            most_first, most = len(self.best_scores[first]) - 1, len(self.best_scores[second]) - 1
            for total, crossing in ((small_ranks, self.ranks.large), (small_ranks - 1, self.ranks.large - 1)):
                for in_second in range(max(0, total - most_first), min(total, most) + 1):
                    yield index, total, in_second, crossing


def _combine(first: BestScores, second: BestScores, most: int) -> BestScores:
    """Return the best sum of the scores of two shapes, for 0 to `most` small ranks in both together."""
    if first[0] == first[-1]:
        first, second = second, first
    last, reverse = len(second) - 1, second[::-1]
    numbers = range(min(len(first) + last, most + 1))
    if second[0] == second[-1]:  # constant: as many small ranks as possible go to the other shape
        return tuple(first[min(small_ranks, len(first) - 1)] + second[0] for small_ranks in numbers)
    return tuple(
        max(
            map(
                add,
                first[max(0, small_ranks - last) : small_ranks + 1],
                reverse[max(0, last - small_ranks) :],
            )
        )
        for small_ranks in numbers
    )
