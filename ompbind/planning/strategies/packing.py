"""Pack ranks into domains so that as few ranks as possible cross a domain boundary, important levels first.

Every rank has `rank_size` cores, but `small_ranks` of the ranks have one core fewer, so that all ranks
together use all cores. Which ranks are the small ones decides how many ranks fit inside a domain. Example:
two NUMA nodes of 9 cores and 4 ranks: two with 5 cores, and two small ones with 4 cores:

    cores                       0–8          9–17
    one small rank per node     000001111    222223333    no rank crosses the boundary
    both in the first node      000011112    222233333    rank 2 crosses it

A domain of `size` cores with `s` small ranks holds (size + s) // rank_size whole ranks: each small rank saves
one core. The fewest ranks
cross boundaries if the most stay inside; the cores that these leave free are used by ranks that cross. So the
only decision is how many small ranks each domain gets: a knapsack problem on the tree of domains.

1. Make the tree of domains (`add_shape`). A *shape* is a domain without its position: equal domains share
   one shape, so a large machine has few shapes. Domains with the same parent are joined in pairs, then pairs
   of pairs. A pair is no domain, so it scores 0. It only makes a rank that crosses a boundary use
   neighbouring domains.
2. From the leaves up, compute the best score of each shape for 0, 1, 2 … small ranks (`find_best_scores`).
   The score counts the ranks that stay inside. One rank inside a domain of a more important level counts more
   than all ranks at the less important levels together.
3. From the root down, give each half its small ranks, and allocate cores (`allocate`).
"""

from collections import deque
from collections.abc import Sequence
from operator import add

from ompbind.planning.strategies.core_sequence import (
    PRIORITY,
    CoreIndices,
    CoreRange,
    CoreSequence,
    split_range,
)
from ompbind.record import Record

RankPiece = tuple[int, int]
"""A rank by number, and how many of its cores are in one domain."""

_Shape = tuple[int, int, tuple[int, ...]]
"""A domain without its position: its size, the score of a rank inside it, the shapes of its halves if any."""

_BestScores = tuple[int, ...]
"""The best score of a shape for no small rank, one, two, and so on."""


class _PlacedShape(Record):
    """A domain: a shape, by number, at the core `offset`, with the score inherited from outer domains.

    `head` and `tail` are pieces of ranks that cross its boundary, for its first and its last free cores.
    """

    shape: int
    offset: int
    small_ranks: int
    inherited_score: int = 0
    head: tuple[RankPiece, ...] = ()
    tail: tuple[RankPiece, ...] = ()


def pack_ranks(
    sequence: CoreSequence,
    rank_size: int,
    *,
    small_ranks: int = 0,
    ignore_unavoidable: bool = False,
    min_score: int = 0,
) -> dict[CoreIndices, int]:
    """Return the cores of as many ranks as fit into a sequence, in ascending order, and each rank's score.

    The score is higher if a rank crosses fewer boundaries. As few ranks as possible cross boundaries of the
    most important level, then of the next level, and so on. Ranks with a score below `min_score` are left
    out; their cores and all cores that remain are not used. With `ignore_unavoidable`, a boundary lowers a
    score only if one of the domains beside it could hold the whole rank.
    """
    packing = _Packing(sequence, rank_size, small_ranks, ignore_unavoidable=ignore_unavoidable)
    root = _PlacedShape(shape=len(packing.shapes) - 1, offset=0, small_ranks=small_ranks)
    packing.allocate(root, min_score)
    return dict(sorted((tuple(sorted(cores)), score) for cores, score in packing.allocations))


class _Packing:
    """The shapes of a sequence, inner ones first, and the allocation of ranks of one size to its cores."""

    def __init__(
        self, sequence: CoreSequence, rank_size: int, small_ranks: int, *, ignore_unavoidable: bool
    ) -> None:
        self.rank_size, self.small_ranks = rank_size, small_ranks
        self.ignore_unavoidable = ignore_unavoidable
        self.min_size = rank_size - (small_ranks > 0)
        self.levels = [level for level in sequence.levels if level.largest >= self.min_size]
        max_ranks = len(sequence.core_cpus) // self.min_size + 1
        order = sorted({level.priority for level in self.levels}, reverse=True)
        self.level_scores = {priority: max_ranks**power for power, priority in enumerate(order)}
        self.shape_numbers: dict[_Shape, int] = {}
        self.add_shape(0, sequence.full_range, 0)
        self.shapes = list(self.shape_numbers)
        self.best_scores: list[_BestScores] = []
        for shape in self.shapes[:-1]:  # the small ranks of the last one, the root, are given
            self.best_scores.append(self.find_best_scores(shape))
        self.boundary_weights: dict[int, int] = {}  # by the first core of domains too small for a rank
        for level in sequence.levels:
            if level.largest < self.min_size:
                for start, _ in level.ranges:
                    weight = 1 << len(PRIORITY) - level.priority
                    self.boundary_weights[start] = self.boundary_weights.get(start, 0) + weight
        self.allocations: list[tuple[list[int], int]] = []  # of each rank: its cores and its score

    def number_shape(self, shape: _Shape) -> int:
        """Return the number of a shape, a new one if no equal shape has one."""
        return self.shape_numbers.setdefault(shape, len(self.shape_numbers))

    def add_shape(self, depth: int, core_range: CoreRange, score: int) -> int:
        """Add the shape of a range and the shapes inside it; return its number.

        The range is split by the first level from `depth` on that has a boundary inside it and a domain that
        can hold a rank. `score` is that of a rank inside the range; each level that
        does not split the range adds its score.
        """
        size = core_range[1] - core_range[0]
        while depth < len(self.levels):
            parts = split_range(self.levels[depth], core_range)
            level_score = self.level_scores[self.levels[depth].priority]
            depth += 1
            if len(parts) == 1:
                score += level_score
            elif any(stop - start >= self.min_size for start, stop in parts):
                shapes = [
                    (stop - start, self.add_shape(depth, (start, stop), level_score)) for start, stop in parts
                ]
                return self.number_shape((size, score, self.join_pairs(shapes)))
            elif self.ignore_unavoidable:
                score += level_score
        return self.number_shape((size, score, ()))

    def join_pairs(self, shapes: list[tuple[int, int]]) -> tuple[int, ...]:
        """Join adjacent shapes, each (size, number), in pairs until two are left; return their numbers."""
        while len(shapes) > 2:
            pairs = [
                (first + second, self.number_shape((first + second, 0, (first_number, second_number))))
                for (first, first_number), (second, second_number) in zip(
                    shapes[::2], shapes[1::2], strict=False
                )
            ]
            shapes = [*pairs, *shapes[2 * len(pairs) :]]
        return tuple(number for _, number in shapes)

    def find_best_scores(self, shape: _Shape) -> _BestScores:
        """Return the best scores of a shape: its halves together, plus the ranks that fit in it."""
        size, score, halves = shape
        most = min(self.small_ranks, size // self.min_size)
        first, second = (self.best_scores[half] for half in halves) if halves else ((0,), (0,))
        inside = _combine(first, second, most)
        capacities = (self.count_ranks(shape, small_ranks) for small_ranks in range(most + 1))
        return tuple(inside[min(i, len(inside) - 1)] + score * ranks for i, ranks in enumerate(capacities))

    def count_ranks(self, shape: _Shape, small_ranks: int) -> int:
        """Return how many whole ranks fit into a shape if `small_ranks` of them are small."""
        return (shape[0] + small_ranks) // self.rank_size

    def allocate(self, domain: _PlacedShape, min_score: int) -> None:
        """Allocate the cores of a domain to the ranks inside it and to the ranks that cross into it."""
        _, shape_score, halves = self.shapes[domain.shape]
        score = domain.inherited_score + shape_score
        small_ranks = self.split_small_ranks(domain)
        own = self.make_own_ranks(domain, small_ranks) if score >= min_score else []
        self.allocations.extend(([], score) for _ in own)
        if halves:
            for half in self.place_halves(domain, small_ranks, own):
                self.allocate(half, min_score)
            return
        core = domain.offset
        own = self.align_sizes(own, core + sum(cores for _, cores in domain.head))
        for rank, cores in (*domain.head, *own, *domain.tail):
            self.allocations[rank][0].extend(range(core, core + cores))
            core += cores

    def split_small_ranks(self, domain: _PlacedShape) -> list[int]:
        """Return how many small ranks each half gets for the best score; more in the second on a tie."""
        halves = self.shapes[domain.shape][2]
        if not halves:
            return []
        first, second = (self.best_scores[half] for half in halves)
        total = min(domain.small_ranks, len(first) + len(second) - 2)
        choices = range(max(0, total - len(first) + 1), min(total, len(second) - 1) + 1)
        in_second = max(choices, key=lambda count: (first[total - count] + second[count], count))
        return [total - in_second, in_second]

    def make_own_ranks(self, domain: _PlacedShape, small_ranks_by_half: Sequence[int]) -> list[RankPiece]:
        """Return the ranks that fit into a domain but into neither half, large ranks first."""
        shape = self.shapes[domain.shape]
        in_halves = (
            self.count_ranks(self.shapes[half], small_ranks)
            for half, small_ranks in zip(shape[2], small_ranks_by_half, strict=True)
        )
        count = self.count_ranks(shape, domain.small_ranks) - sum(in_halves)
        large = count - (domain.small_ranks - sum(small_ranks_by_half))
        return [(len(self.allocations) + i, self.rank_size - (i >= large)) for i in range(count)]

    def align_sizes(self, own: Sequence[RankPiece], start: int) -> list[RankPiece]:
        """Order the sizes of adjacent ranks so that ranks end at boundaries of small domains if possible."""
        sizes = sorted(cores for _, cores in own)
        aligned: list[RankPiece] = []
        for rank, _ in own:
            small, large = (self.boundary_weights.get(start + size, 0) for size in (sizes[0], sizes[-1]))
            size = sizes.pop(0 if small > large else -1)
            aligned.append((rank, size))
            start += size
        return aligned

    def place_halves(
        self, domain: _PlacedShape, small_ranks_by_half: Sequence[int], own: Sequence[RankPiece]
    ) -> list[_PlacedShape]:
        """Return the halves of a domain; the ranks that cross between them get the cores left free in each.

        A rank that continues from the first half gets the first free cores of the second: they are closest.
        """
        _, shape_score, halves = self.shapes[domain.shape]
        queue = deque((*domain.head, *own, *domain.tail))
        started = {rank for rank, _ in domain.head}
        placed: list[_PlacedShape] = []
        offset = domain.offset
        for number, small_ranks in zip(halves, small_ranks_by_half, strict=True):
            shape = self.shapes[number]
            free = shape[0] - self.count_ranks(shape, small_ranks) * self.rank_size + small_ranks
            pieces = _take_cores(queue, free)
            half = _PlacedShape(
                shape=number,
                offset=offset,
                small_ranks=small_ranks,
                inherited_score=domain.inherited_score + shape_score,
                head=tuple(piece for piece in pieces if piece[0] in started),
                tail=tuple(piece for piece in pieces if piece[0] not in started),
            )
            placed.append(half)
            started.update(rank for rank, _ in pieces)
            offset += shape[0]
        return placed


def _combine(first: _BestScores, second: _BestScores, most: int) -> _BestScores:
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


def _take_cores(queue: deque[RankPiece], free: int) -> list[RankPiece]:
    """Take pieces of `free` cores in all from a queue; the last piece is split if necessary."""
    pieces: list[RankPiece] = []
    while free and queue:
        rank, cores = queue.popleft()
        used = min(free, cores)
        pieces.append((rank, used))
        free -= used
        if used < cores:
            queue.appendleft((rank, cores - used))
    return pieces
