"""The tree of domains as *shapes*: domains without their positions, so that equal domains are one shape.

A large machine has few shapes. For 2 packages with 4 L3s each, and 8 cores in each L3:

    shape 0     an L3: 8 cores
    shape 1-2   two and three L3s of one package
    shape 3     a package: 4 L3s
    shape 4     the machine: 2 packages

A shape with children is divided into two *halves*: any child, and the shape of all other children. So ranks
that cross boundaries can use domains that are not adjacent. If this would take too long, only adjacent
children are joined, in pairs and then in pairs of pairs.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from operator import add

from ompbind.planning.strategies.core_sequence import (
    CoreRange,
    CoreSequence,
    LevelRanges,
    find_levels,
    split_range,
)
from ompbind.record import Record

SEARCH_LIMIT = 1 << 16
"""Combinations of children and small ranks that are tried for all shapes together: about 0.2 s."""

SHAPE_STEPS = 16
"""Combinations that take as long as making one shape."""

CHILDREN_LIMIT = 64
"""Children that are combined in any order; more are joined in pairs."""


class RankSizes(Record):
    """The sizes of ranks: `large` cores, but `small_ranks` of the ranks have one core fewer."""

    large: int
    small_ranks: int = 0

    @property
    def smallest(self) -> int:
        """The cores of the smallest rank."""
        return self.large - (self.small_ranks > 0)

    def count(self, cores: int, small_ranks: int) -> int:
        """Return how many whole ranks fit on some cores if `small_ranks` of them are small."""
        return (cores + small_ranks) // self.large

    def count_free(self, cores: int, small_ranks: int) -> int:
        """Return how many of the cores are left free then."""
        return (cores + small_ranks) % self.large

    def most_small(self, cores: int) -> int:
        """Return how many small ranks fit on some cores."""
        return min(self.small_ranks, cores // self.smallest)


class Shape(Record):
    """A domain, or some of the domains inside one, without the position; `size` is in cores.

    `children` are the numbers of the shapes inside it, in the order of the machine. `score` is the score of a
    rank inside it. `full_score` is added if whole ranks use all its cores; `inner_full_score` is the same for
    the levels inside it.
    """

    size: int
    score: int = 0
    full_score: int = 0
    inner_full_score: int = 0
    children: tuple[int, ...] = ()


Halves = tuple[int, int, int]
"""The index of one child, the shape of all other children, and the shape of this child, by number."""


class ShapeTree:
    """The shapes of a sequence, inner ones first, and the ways to divide each into halves.

    With `least_reach`, levels with domains that are too small for a rank have shapes too. With
    `ignore_unavoidable`, a boundary lowers a score only if one of the domains beside it could hold a rank.
    """

    def __init__(
        self, sequence: CoreSequence, ranks: RankSizes, *, ignore_unavoidable: bool, least_reach: bool
    ) -> None:
        self.ranks, self.ignore_unavoidable, self.least_reach = ranks, ignore_unavoidable, least_reach
        levels = find_levels(sequence)
        useful = [level for level in levels if level.largest >= ranks.smallest]
        self.levels = list(levels) if least_reach else useful
        cores = len(sequence.core_cpus)
        self.full_scores = _weigh(self.levels if least_reach else [], cores + 1, 1)
        lowest = (cores + 1) ** len(self.full_scores)
        self.scores = _weigh(useful, cores // ranks.smallest + 1, lowest)
        self.steps_left = SEARCH_LIMIT if least_reach else 0
        self.numbers: dict[Shape, int] = {}
        self.shapes: list[Shape] = []
        self.halves: list[tuple[Halves, ...]] = []
        self.add_range(0, (0, cores), 0, 0)

    def add_range(self, depth: int, core_range: CoreRange, score: int, full_score: int) -> int:
        """Add the shape of a range and the shapes inside it; return its number.

        The range is split by the first level from `depth` on that has a boundary inside it. Each level that
        does not split the range adds to `score` and `full_score`.
        """
        size = core_range[1] - core_range[0]
        for index, level in enumerate(self.levels[depth:], depth):
            parts = split_range(level, core_range)
            level_score = self.scores.get(level.priority, 0)
            level_full_score = self.full_scores.get(level.priority, 0)
            if len(parts) == 1:
                score, full_score = score + level_score, full_score + level_full_score
            elif self.least_reach or any(stop - start >= self.ranks.smallest for start, stop in parts):
                inner = sum(self.full_scores.get(inner.priority, 0) for inner in self.levels[index:])
                children = tuple(
                    self.add_range(index + 1, part, level_score, level_full_score) for part in parts
                )
                shape = Shape(size=size, score=score, full_score=full_score, inner_full_score=inner)
                return self.add_with_children(shape, children)
            elif self.ignore_unavoidable:
                score += level_score
        return self.add(Shape(size=size, score=score, full_score=full_score))

    def add(self, shape: Shape) -> int:
        """Add a shape unless an equal one exists; return its number."""
        if shape not in self.numbers:
            self.halves.append(tuple(self.find_halves(shape)))
            self.numbers[shape] = len(self.shapes)
            self.shapes.append(shape)
        return self.numbers[shape]

    def add_with_children(self, shape: Shape, children: tuple[int, ...]) -> int:
        """Add a shape, and first all shapes of several of its children that halves may need."""
        if shape.replace(children=children) not in self.numbers:
            parts = self.choose_parts(shape, children)
            if not parts:
                children = self.join_pairs(shape, children)
            for part in parts:
                self.add(self.make_part(shape, part))
        return self.add(shape.replace(children=children))

    def choose_parts(self, shape: Shape, children: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return selections of children, fewer first; none if the children must be joined in pairs.

        Returns all different selections, or only the first children if there are too many selections.
        """
        if len(children) > CHILDREN_LIMIT:
            return []
        kinds = {child: children.count(child) for child in children}
        most_small = max(self.ranks.most_small(self.shapes[child].size) for child in kinds)
        steps = (self.ranks.most_small(shape.size) + 1) * (most_small + 1) + SHAPE_STEPS
        count = 1  # of selections
        for times in kinds.values():
            count *= times + 1
        if self.use_steps(steps * len(kinds) * count):
            choices = sorted(product(*(range(times + 1) for times in kinds.values())), key=sum)
            selections = (dict(zip(kinds, times, strict=True)) for times in choices)
            return [tuple(_select(children, times)) for times in selections if sum(times.values()) > 1]
        if self.use_steps(steps * len(children)):
            return [children[:number] for number in range(2, len(children) + 1)]
        return []

    def use_steps(self, steps: int) -> bool:
        """Return whether so many steps are left, and use them."""
        is_left = steps <= self.steps_left
        self.steps_left -= steps * is_left
        return is_left

    def make_part(self, shape: Shape, children: tuple[int, ...]) -> Shape:
        """Return the shape of some children of a shape. It is no domain, so it has no score."""
        size = sum(self.shapes[child].size for child in children)
        return Shape(size=size, inner_full_score=shape.inner_full_score, children=children)

    def join_pairs(self, shape: Shape, children: tuple[int, ...]) -> tuple[int, ...]:
        """Join adjacent children in pairs until two are left; return their numbers."""
        while len(children) > 2:
            pairs = zip(children[::2], children[1::2], strict=False)
            last = children[len(children) // 2 * 2 :]
            children = (*(self.add(self.make_part(shape, pair)) for pair in pairs), *last)
        return children

    def find_halves(self, shape: Shape) -> Iterator[Halves]:
        """Yield the ways to divide a shape; the first separates the last child."""
        last_of_kind = {child: index for index, child in enumerate(shape.children)}
        for child, index in sorted(last_of_kind.items(), key=lambda entry: -entry[1]):
            others = shape.children[:index] + shape.children[index + 1 :]
            number = others[0] if len(others) == 1 else self.numbers.get(self.make_part(shape, others))
            if number is not None:
                yield index, number, child


def _weigh(levels: Sequence[LevelRanges], base: int, lowest: int) -> dict[int, int]:
    """Return a score by priority: one rank at a level counts more than all at less important levels."""
    order = sorted({level.priority for level in levels}, reverse=True)
    return {priority: lowest * base**power for power, priority in enumerate(order)}


def _select(children: Sequence[int], times: dict[int, int]) -> Iterator[int]:
    """Yield the first children of each kind, as many as given, in order."""
    for child in children:
        if times[child]:
            times[child] -= 1
            yield child


# The best scores of shapes: how many small ranks each half gets, and in which order halves are used.
#
# `packing` says what is counted. A shape is scored for every number of small ranks that it can have. If a
# rank that started before the shape ends inside it, it is scored again for each number of cores that this
# rank uses there, because small domains may be full together up to that core.


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
