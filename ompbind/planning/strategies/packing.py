"""Pack ranks into domains so that as few ranks as possible cross a domain boundary, important levels first.

Every rank has `rank_size` cores, but `small_ranks` of the ranks have one core fewer, so that all ranks
together use all cores. Which ranks are the small ones decides how many ranks fit inside a domain. Example:
two NUMA nodes of 9 cores and 4 ranks: two with 5 cores, and two small ones with 4 cores:

    cores                       0–8          9–17
    one small rank per node     000001111    222223333    no rank crosses the boundary
    both in the first node      000011112    222233333    rank 2 crosses it

A domain of `size` cores with `s` small ranks holds (size + s) // rank_size whole ranks: each small rank saves
one core. The fewest ranks cross boundaries if the most stay inside. The cores that these leave free are used
by ranks that cross.

Among these plans the best has the least *reach*: the number of domains that each rank uses, summed over all
ranks. Ranks that cross are a chain: each continues where the rank before it ends. The chain is interrupted
where the end of a rank is the end of a domain. Then whole ranks use all cores of the domains before it: these
domains are *full* together. So

    reach = ranks + domains - groups of domains that are full together

Example: nodes of 18, 18, 16 and 16 cores, and 4 ranks of 17 cores. Two ranks cross. In the order of the nodes
they use 1 + 1 + 15 and 1 + 16 cores: one group, reach 4 + 4 - 1 = 7. If the first uses node 2 and the second
node 3, they use 1 + 16 and 1 + 16 cores: two groups, reach 6.

So two things are to decide: how many small ranks each domain gets, and in which order ranks use the domains.
Both are a knapsack problem on the tree of domains:

1. Make the tree (`shapes`).
2. From the leaves up, compute the best score of each shape for 0, 1, 2 … small ranks (`scores`).
   The score counts the ranks that stay inside, and then the full groups. A rank inside a domain of a more
   important level counts more than all ranks at the less important levels together.
3. From the root down, give each half its small ranks, and allocate cores (`allocate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, islice

from ompbind.planning.strategies.core_sequence import CoreIndices, CoreSequence
from ompbind.planning.strategies.shapes import RankSizes, ShapeScores, ShapeTree, Split
from ompbind.record import Record

RankPiece = tuple[int, int]
"""A rank by number, and how many of its cores are in one domain."""


class _PlacedShape(Record):
    """A shape, by number, with the score inherited from outer domains.

    `starts` is the first core, or for several children of a domain the first core of each. `head` and `tail`
    are pieces of ranks that cross its boundary, for its first and its last free cores. If it is `backwards`,
    its last core is used first.
    """

    shape: int
    starts: tuple[int, ...]
    small_ranks: int
    inherited_score: int = 0
    head: tuple[RankPiece, ...] = ()
    tail: tuple[RankPiece, ...] = ()
    backwards: bool = False

    @property
    def reversed(self) -> _PlacedShape:
        """The same shape, with its cores used in the opposite order."""
        return self.replace(head=self.tail[::-1], tail=self.head[::-1], backwards=not self.backwards)


def pack_ranks(
    sequence: CoreSequence,
    ranks: RankSizes,
    *,
    least_reach: bool = False,
    ignore_unavoidable: bool = False,
    min_score: int = 0,
) -> dict[CoreIndices, int]:
    """Return the cores of as many ranks as fit into a sequence, in ascending order, and each rank's score.

    The score is higher if a rank crosses fewer boundaries. As few ranks as possible cross boundaries of the
    most important level, then of the next level, and so on; with `least_reach`, ranks then use as few domains
    as possible. Ranks with a score below `min_score` are left out; their cores and all cores that remain are
    not used. With `ignore_unavoidable`, a boundary lowers a score only if one of the domains beside it could
    hold the whole rank.
    """
    tree = ShapeTree(sequence, ranks, ignore_unavoidable=ignore_unavoidable, least_reach=least_reach)
    packing = _Packing(tree, min_score)
    waiting = [_PlacedShape(shape=len(tree.shapes) - 1, starts=(0,), small_ranks=ranks.small_ranks)]
    while waiting:
        waiting.extend(packing.allocate(waiting.pop()))
    return dict(sorted((tuple(sorted(cores)), score) for cores, score in packing.allocations))


class _Packing:
    """The allocation of ranks to the cores of a tree of shapes."""

    def __init__(self, tree: ShapeTree, min_score: int) -> None:
        self.shapes, self.halves, self.ranks = tree.shapes, tree.halves, tree.ranks
        self.least_reach, self.min_score = tree.least_reach, min_score
        self.scores = ShapeScores(tree)
        self.allocations: list[tuple[list[int], int]] = []  # of each rank: its cores and its score

    def allocate(self, domain: _PlacedShape) -> list[_PlacedShape]:
        """Allocate the cores of a domain to the ranks inside it and to ranks that cross into it.

        Returns the halves of a domain that has halves: they are still to be allocated.
        """
        if not self.halves[domain.shape]:
            own = self.start_ranks(domain, ())
            start = domain.starts[0]
            cores = list(range(start, start + self.shapes[domain.shape].size))
            order = iter(cores[::-1] if domain.backwards else cores)
            for rank, size in (*domain.head, *own, *domain.tail):
                self.allocations[rank][0].extend(islice(order, size))
            return []
        domain, (_, negative_index, _, in_second, negative_total) = self.choose_split(domain)
        child, first, second = self.halves[domain.shape][-negative_index]
        in_first = -negative_total - in_second
        starts = self.find_starts(domain)
        halves = (
            _PlacedShape(
                shape=first,
                starts=starts[:child] + starts[child + 1 :],
                small_ranks=in_first,
                backwards=domain.backwards,
            ),
            _PlacedShape(
                shape=second,
                starts=starts[child : child + 1],
                small_ranks=in_second,
                backwards=domain.backwards,
            ),
        )
        return self.fill_halves(domain, halves, self.start_ranks(domain, halves))

    def choose_split(self, domain: _PlacedShape) -> tuple[_PlacedShape, Split]:
        """Return the best split of a domain, and the domain, reversed if that is better.

        If all free cores are for ranks that started before, these ranks get the first cores, the closest.
        """
        if self.least_reach and domain.head and not domain.tail:
            domain = domain.reversed
        split = self.find_best_split(domain)
        if self.least_reach and domain.head:
            other = self.find_best_split(domain.reversed)
            if other[0] > split[0]:
                return domain.reversed, other
        return domain, split

    def find_best_split(self, domain: _PlacedShape) -> Split:
        """Return the best way to give the small ranks of a domain to its halves."""
        head = sum(cores for _, cores in domain.head)
        return max(self.scores.find_splits(domain.shape, domain.small_ranks, head))

    def find_starts(self, domain: _PlacedShape) -> tuple[int, ...]:
        """Return the first core of each child of a domain; equal children are in the order of their use."""
        children = self.shapes[domain.shape].children
        sizes = (self.shapes[child].size for child in children[:-1])
        is_domain = len(domain.starts) == 1
        starts = accumulate(sizes, initial=domain.starts[0]) if is_domain else domain.starts
        by_kind: dict[int, list[int]] = {}
        for child, start in zip(children, starts, strict=True):
            by_kind.setdefault(child, []).append(start)
        for kind in by_kind.values():
            kind.sort(reverse=not domain.backwards)
        return tuple(by_kind[child].pop() for child in children)

    def start_ranks(self, domain: _PlacedShape, halves: Sequence[_PlacedShape]) -> list[RankPiece]:
        """Return the ranks that fit into a domain but into neither half, large ranks first."""
        score = domain.inherited_score + self.shapes[domain.shape].score
        if score < self.min_score:
            return []
        in_halves = sum(self.scores.count_ranks(half.shape, half.small_ranks) for half in halves)
        count = self.scores.count_ranks(domain.shape, domain.small_ranks) - in_halves
        large = count - (domain.small_ranks - sum(half.small_ranks for half in halves))
        first = len(self.allocations)
        self.allocations.extend(([], score) for _ in range(count))
        return [(first + i, self.ranks.large - (i >= large)) for i in range(count)]

    def fill_halves(
        self, domain: _PlacedShape, halves: Sequence[_PlacedShape], own: Sequence[RankPiece]
    ) -> list[_PlacedShape]:
        """Return the halves of a domain; the ranks that cross between them get the cores left free in each.

        A rank that continues from the first half gets the first free cores of the second: they are closest.
        """
        score = domain.inherited_score + self.shapes[domain.shape].score
        left = [*domain.head, *own, *domain.tail][::-1]
        started = {rank for rank, _ in domain.head}
        filled: list[_PlacedShape] = []
        for half in halves:
            pieces = _take_pieces(left, self.scores.count_free(half.shape, half.small_ranks))
            head = tuple(piece for piece in pieces if piece[0] in started)
            tail = tuple(piece for piece in pieces if piece[0] not in started)
            filled.append(half.replace(inherited_score=score, head=head, tail=tail))
            started.update(rank for rank, _ in pieces)
        return filled


def _take_pieces(left: list[RankPiece], free: int) -> list[RankPiece]:
    """Take pieces of `free` cores in all from the end of a list; the last piece is split if necessary."""
    pieces: list[RankPiece] = []
    while free and left:
        rank, cores = left.pop()
        used = min(free, cores)
        pieces.append((rank, used))
        free -= used
        if used < cores:
            left.append((rank, cores - used))
    return pieces


def divide_equally(sequence: CoreSequence, ranks: int) -> list[CoreIndices]:
    """Return an equal share of all cores for every rank, with the fewest ranks across domain boundaries."""
    cores = len(sequence.core_cpus)
    rank_size = -(-cores // ranks)
    small_ranks = rank_size * ranks - cores
    numberings = (*(numbers for _, numbers in sequence.domain_numbers), sequence.kind_numbers)
    if all(len(set(numbers)) in (1, len(numbers)) for numbers in numberings):  # no boundaries
        large_ranks = ranks - small_ranks
        starts = [rank * rank_size - max(0, rank - large_ranks) for rank in range(ranks + 1)]
        return [tuple(range(starts[rank], starts[rank + 1])) for rank in range(ranks)]
    sizes = RankSizes(large=rank_size, small_ranks=small_ranks)
    return list(pack_ranks(sequence, sizes, least_reach=True))
