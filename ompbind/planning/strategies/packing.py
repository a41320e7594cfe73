"""Fitting ranks into domains: as many as can be stay inside one, of the most important level first.

Every rank has `large` units, but `smalls` of them have one less, so that all ranks together fill the field.
It matters which: a domain of 8 units holds two ranks of 4, one more than it holds of 5 units. The fewest
ranks cross borders when the most stay inside, and what the ranks inside a domain leave of it is free for
those that cross. So a domain of `size` units that has `s` small ranks holds (size + s) // large ranks,
and all there is to decide is how many small ranks each domain gets: a knapsack on the tree of domains.

A *form* is a domain with what is in it but without its position: equal domains are of one form, whose
*curve* (its worth for each number of small ranks) is worked out once. Worth counts the ranks that stay
inside, those of a more important level by more than all of the others together. Domains are joined in
pairs, and pairs of pairs, which are forms as well, of no worth of their own: so a machine of many equal
domains has few forms, and a rank that crosses borders crosses to a neighbour.
"""

from collections import deque
from collections.abc import Sequence
from operator import add

from ompbind.planning.strategies.core_sequence import PRIORITY, CoreIndices, CoreSequence, Span, within
from ompbind.record import Record

Piece = tuple[int, int]
"""A rank by number, and how many units it takes in some place."""

_Form = tuple[int, int, tuple[int, ...]]
"""The size of a domain, what a rank inside it is worth, and the numbers of its two halves, if any."""

_Curve = tuple[int, ...]
"""The worth of a form for no small rank, one, two, and so on."""


class _Room(Record):
    """A form in its place, the worth of being there, its small ranks, and what other ranks take of it.

    `head` and `tail` are pieces of ranks that do not stay inside, for its first and its last free units.
    """

    form: int
    start: int
    smalls: int
    score: int = 0
    head: tuple[Piece, ...] = ()
    tail: tuple[Piece, ...] = ()


def fit(
    sequence: CoreSequence, large: int, *, smalls: int = 0, forgiving: bool = False, least: int = 0
) -> dict[CoreIndices, int]:
    """Fit as many ranks into a field as it holds; return the units of each, in their order, with its worth.

    Worth is higher where a rank crosses fewer borders. Those that cross one of the most important level are
    as few as can be, then those of the next level, and so on. Units that are left over stay free, and so do
    those of ranks worth less than `least`. With `forgiving`, a border counts against a rank only where a
    domain beside it could have held the rank.
    """
    packing = _Packing(sequence, large, smalls, forgiving=forgiving)
    packing.place(_Room(form=len(packing.forms) - 1, start=0, smalls=smalls), least)
    return dict(sorted((tuple(sorted(indices)), score) for indices, score in packing.placed))


class _Packing:
    """The forms of a field, those inside others before them, and what ranks of one size do there."""

    def __init__(self, sequence: CoreSequence, large: int, smalls: int, *, forgiving: bool) -> None:
        self.large, self.smalls, self.forgiving = large, smalls, forgiving
        self.smallest = large - (smalls > 0)
        self.useful = [one for one in sequence.divisions if one.widest >= self.smallest]
        most = len(sequence.units) // self.smallest + 1
        order = sorted({one.rank for one in self.useful}, reverse=True)
        self.score = {rank: most**place for place, rank in enumerate(order)}
        self.numbers: dict[_Form, int] = {}
        self.grow(0, sequence.whole, 0)
        self.forms = list(self.numbers)
        self.curves: list[_Curve] = []
        for form in self.forms[:-1]:  # the last one has its number of small ranks already
            self.curves.append(self.curve(form))
        self.marks: dict[
            int, int
        ] = {}  # where smaller domains begin, and how much it matters not to cut them
        for one in sequence.divisions:
            if one.widest < self.smallest:
                for start, _ in one.spans:
                    self.marks[start] = self.marks.get(start, 0) + (1 << len(PRIORITY) - one.rank)
        self.placed: list[tuple[list[int], int]] = []

    def number(self, form: _Form) -> int:
        return self.numbers.setdefault(form, len(self.numbers))

    def grow(self, depth: int, span: Span, gained: int) -> int:
        """Return the number of the form of a span, whose parts are those of the divisions from `depth` on."""
        while depth < len(self.useful):
            parts = within(self.useful[depth], span)
            each = self.score[self.useful[depth].rank]
            depth += 1
            if len(parts) == 1:
                gained += each
            elif any(stop - start >= self.smallest for start, stop in parts):
                forms = [(stop - start, self.grow(depth, (start, stop), each)) for start, stop in parts]
                return self.number((span[1] - span[0], gained, self.paired(forms)))
            elif self.forgiving:
                gained += each
        return self.number((span[1] - span[0], gained, ()))

    def paired(self, parts: list[tuple[int, int]]) -> tuple[int, ...]:
        """Join forms, each (size, number), with their neighbours until two are left; return their numbers."""
        while len(parts) > 2:
            pairs = [
                (one[0] + other[0], self.number((one[0] + other[0], 0, (one[1], other[1]))))
                for one, other in zip(parts[::2], parts[1::2], strict=False)
            ]
            parts = [*pairs, *parts[2 * len(pairs) :]]
        return tuple(form for _, form in parts)

    def curve(self, form: _Form) -> _Curve:
        size, score, halves = form
        most = min(self.smalls, size // self.smallest)
        first, second = (self.curves[half] for half in halves) if halves else ((0,), (0,))
        inside = _join(first, second, most)
        held = (self.held(form, smalls) for smalls in range(most + 1))
        return tuple(inside[min(at, len(inside) - 1)] + score * ranks for at, ranks in enumerate(held))

    def held(self, form: _Form, smalls: int) -> int:
        """Return how many ranks a form holds when so many of them are small."""
        return (form[0] + smalls) // self.large

    def place(self, room: _Room, least: int) -> None:
        """Give the ranks of a room their units, and pieces of those that cross into it theirs."""
        _, gained, halves = self.forms[room.form]
        score = room.score + gained
        parts = self.smalls_inside(room)
        own = self.open(room, parts) if score >= least else []
        self.placed.extend(([], score) for _ in own)
        if halves:
            for half in self.rooms_inside(room, parts, own):
                self.place(half, least)
            return
        start = room.start
        own = self.aligned(own, start + sum(units for _, units in room.head))
        for rank, units in (*room.head, *own, *room.tail):
            self.placed[rank][0].extend(range(start, start + units))
            start += units

    def smalls_inside(self, room: _Room) -> list[int]:
        """Return how many small ranks each half of a room has, for the best worth; more in the second."""
        halves = self.forms[room.form][2]
        if not halves:
            return []
        first, second = (self.curves[half] for half in halves)
        inside = min(room.smalls, len(first) + len(second) - 2)
        choices = range(max(0, inside - len(first) + 1), min(inside, len(second) - 1) + 1)
        mine = max(choices, key=lambda mine: (first[inside - mine] + second[mine], mine))
        return [inside - mine, mine]

    def open(self, room: _Room, parts: Sequence[int]) -> list[Piece]:
        """Return the ranks that stay inside a room but in none of its parts, whole, the large ones first."""
        form = self.forms[room.form]
        inner = (self.held(self.forms[one], smalls) for one, smalls in zip(form[2], parts, strict=True))
        count = self.held(form, room.smalls) - sum(inner)
        large = count - (room.smalls - sum(parts))
        return [(len(self.placed) + i, self.large - (i >= large)) for i in range(count)]

    def aligned(self, own: Sequence[Piece], start: int) -> list[Piece]:
        """Order the sizes of ranks beside each other so that they end where small domains do, if they can."""
        waiting = sorted(units for _, units in own)
        aligned: list[Piece] = []
        for rank, _ in own:
            small, large = (self.marks.get(start + units, 0) for units in (waiting[0], waiting[-1]))
            units = waiting.pop(0 if small > large else -1)
            aligned.append((rank, units))
            start += units
        return aligned

    def rooms_inside(self, room: _Room, parts: Sequence[int], own: Sequence[Piece]) -> list[_Room]:
        """Return the rooms of the halves of a room, its crossing ranks dealt to what these have free.

        A rank that goes on from the first half takes the first units of the second, to have neighbours.
        """
        _, gained, halves = self.forms[room.form]
        queue = deque((*room.head, *own, *room.tail))
        begun = {rank for rank, _ in room.head}
        rooms: list[_Room] = []
        start = room.start
        for number, smalls in zip(halves, parts, strict=True):
            inner = self.forms[number]
            pieces = _take(queue, inner[0] - self.held(inner, smalls) * self.large + smalls)
            head = tuple(piece for piece in pieces if piece[0] in begun)
            tail = tuple(piece for piece in pieces if piece[0] not in begun)
            score = room.score + gained
            rooms.append(_Room(form=number, start=start, smalls=smalls, score=score, head=head, tail=tail))
            begun.update(rank for rank, _ in pieces)
            start += inner[0]
        return rooms


def _join(one: _Curve, other: _Curve, most: int) -> _Curve:
    """Return the best worth of two curves together, for each number of small ranks up to `most`."""
    if one[0] == one[-1]:
        one, other = other, one
    last, backwards = len(other) - 1, other[::-1]
    numbers = range(min(len(one) + last, most + 1))
    if other[0] == other[-1]:  # where they are makes no difference
        return tuple(one[min(smalls, len(one) - 1)] + other[0] for smalls in numbers)
    return tuple(
        max(map(add, one[max(0, smalls - last) : smalls + 1], backwards[max(0, last - smalls) :]))
        for smalls in numbers
    )


def _take(queue: deque[Piece], free: int) -> list[Piece]:
    """Take pieces of so many units from a queue, the last one cut if need be."""
    taken: list[Piece] = []
    while free and queue:
        rank, units = queue.popleft()
        mine = min(free, units)
        taken.append((rank, mine))
        free -= mine
        if mine < units:
            queue.appendleft((rank, units - mine))
    return taken
