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
from collections.abc import Callable, Iterator, Sequence
from operator import add

from ompbind.planning.strategies.core_sequence import PRIORITY, Cut, Division, Field, Span, within
from ompbind.record import Record

Piece = tuple[int, int]
"""A rank by number, and how many units it takes in some place."""


class Sizes(Record):
    """Units of a rank, and how many ranks have one less.

    With `forgiving`, a border counts against a rank only where a domain beside it could have held the rank.
    """

    large: int
    smalls: int = 0
    forgiving: bool = False

    @property
    def least(self) -> int:
        """The units of the smallest rank."""
        return self.large - (self.smalls > 0)


class Fitted(Record):
    """One rank in its place: its units, and its worth, higher where it crosses fewer borders."""

    cut: Cut
    worth: int


class _Form(Record):
    """The size of a domain, what a rank inside it is worth, and the numbers of its two halves, if any."""

    size: int
    worth: int
    halves: tuple[int, ...]


_Curve = tuple[int, ...]
"""The worth of a form for no small rank, one, two, and so on."""


class _Tree(Record):
    """All forms, those inside others before them, so that the last one is the whole; a curve for each."""

    sizes: Sizes
    forms: tuple[_Form, ...]
    curves: tuple[_Curve, ...]


class _Room(Record):
    """A form in its place, the worth of being there, its small ranks, and what other ranks take of it.

    `head` and `tail` are pieces of ranks that do not stay inside, for its first and its last free units.
    """

    form: int
    start: int
    smalls: int
    worth: int = 0
    head: tuple[Piece, ...] = ()
    tail: tuple[Piece, ...] = ()


def fit(field: Field, sizes: Sizes, least: int = 0) -> list[Fitted]:
    """Fit as many ranks of these sizes into a field as it holds, in the order of their first units.

    The ranks that cross a border of the most important level are as few as can be, then those of the next
    level, and so on. Units that are left over stay free, and so do those of ranks worth less than `least`.
    """
    tree = _make_tree(field, sizes)
    cuts: list[list[int]] = []
    worths: list[int] = []
    marks = _marks(field.divisions, sizes)
    rooms = [_Room(form=len(tree.forms) - 1, start=0, smalls=sizes.smalls)]
    while rooms:
        room = rooms.pop()
        form = tree.forms[room.form]
        parts = _smalls_inside(tree, room)
        worthy = room.worth + form.worth >= least
        own = _open(tree, room, parts, len(cuts)) if worthy else []
        cuts.extend([] for _ in own)
        worths.extend([room.worth + form.worth] * len(own))
        if form.halves:
            rooms.extend(_rooms_inside(tree, room, parts, own))
        else:
            own = _aligned(own, room.start + sum(units for _, units in room.head), marks)
            _settle(cuts, room.start, (*room.head, *own, *room.tail))
    fitted = [Fitted(cut=tuple(sorted(cut)), worth=worth) for cut, worth in zip(cuts, worths, strict=True)]
    return sorted(fitted, key=lambda one: one.cut[0])


def _marks(divisions: Sequence[Division], sizes: Sizes) -> dict[int, int]:
    """Map where domains begin that are too small for any rank to how much it matters not to cut them."""
    marks: dict[int, int] = {}
    for one in divisions:
        if one.widest < sizes.least:
            for start, _ in one.spans:
                marks[start] = marks.get(start, 0) + (1 << len(PRIORITY) - one.rank)
    return marks


def _aligned(own: Sequence[Piece], start: int, marks: dict[int, int]) -> list[Piece]:
    """Order the sizes of ranks beside each other so that they end where small domains do, where they can."""
    waiting = sorted(units for _, units in own)
    aligned: list[Piece] = []
    for rank, _ in own:
        small, large = waiting[0], waiting[-1]
        units = waiting.pop(0 if marks.get(start + small, 0) > marks.get(start + large, 0) else -1)
        aligned.append((rank, units))
        start += units
    return aligned


def _settle(cuts: list[list[int]], start: int, pieces: Sequence[Piece]) -> None:
    """Give the units from `start` on to ranks, piece after piece."""
    for rank, units in pieces:
        cuts[rank].extend(range(start, start + units))
        start += units


def _make_tree(field: Field, sizes: Sizes) -> _Tree:
    useful = [one for one in field.divisions if one.widest >= sizes.least]
    most = len(field.units) // sizes.least + 1
    order = sorted({one.rank for one in useful}, reverse=True)
    worth = {rank: most**place for place, rank in enumerate(order)}
    numbers: dict[tuple[int, int, tuple[int, ...]], int] = {}

    def number(size: int, gained: int, halves: tuple[int, ...]) -> int:
        return numbers.setdefault((size, gained, halves), len(numbers))

    def grow(depth: int, span: Span, gained: int) -> int:
        """Return the number of the form of a span, whose parts are those of the divisions from `depth` on."""
        while depth < len(useful):
            parts = within(useful[depth], span)
            each = worth[useful[depth].rank]
            depth += 1
            if len(parts) == 1:
                gained += each
            elif any(stop - start >= sizes.least for start, stop in parts):
                halves = [(stop - start, grow(depth, (start, stop), each)) for start, stop in parts]
                return number(span[1] - span[0], gained, _paired(halves, number))
            elif sizes.forgiving:
                gained += each
        return number(span[1] - span[0], gained, ())

    grow(0, field.whole, 0)
    forms = tuple(_Form(size=size, worth=each, halves=halves) for size, each, halves in numbers)
    return _Tree(sizes=sizes, forms=forms, curves=_curves(forms, sizes))


def _paired(
    parts: Sequence[tuple[int, int]], number: Callable[[int, int, tuple[int, ...]], int]
) -> tuple[int, ...]:
    """Join forms, each (size, number), with their neighbours until two are left; return their numbers."""
    while len(parts) > 2:
        pairs = [
            (one[0] + other[0], number(one[0] + other[0], 0, (one[1], other[1])))
            for one, other in zip(parts[::2], parts[1::2], strict=False)
        ]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return tuple(form for _, form in parts)


def _curves(forms: Sequence[_Form], sizes: Sizes) -> tuple[_Curve, ...]:
    """Work out the curves of all forms but the last, which has its number of small ranks already."""
    curves: list[_Curve] = []
    for form in forms[:-1]:
        most = min(sizes.smalls, form.size // sizes.least)
        first, second = (curves[half] for half in form.halves) if form.halves else ((0,), (0,))
        inside = _join(first, second, most)
        worth = (
            inside[min(smalls, len(inside) - 1)] + form.worth * _held(form, smalls, sizes)
            for smalls in range(most + 1)
        )
        curves.append(tuple(worth))
    return tuple(curves)


def _held(form: _Form, smalls: int, sizes: Sizes) -> int:
    """Return how many ranks a form holds when so many of them are small."""
    return (form.size + smalls) // sizes.large


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


def _smalls_inside(tree: _Tree, room: _Room) -> list[int]:
    """Return how many small ranks each half of a room has, for the best worth; the second one has more."""
    halves = tree.forms[room.form].halves
    if not halves:
        return []
    first, second = (tree.curves[half] for half in halves)
    inside = min(room.smalls, len(first) + len(second) - 2)
    choices = range(max(0, inside - len(first) + 1), min(inside, len(second) - 1) + 1)
    mine = max(choices, key=lambda mine: (first[inside - mine] + second[mine], mine))
    return [inside - mine, mine]


def _open(tree: _Tree, room: _Room, parts: Sequence[int], number: int) -> list[Piece]:
    """Return the ranks that stay inside a room but in none of its parts, whole, the large ones first."""
    form, sizes = tree.forms[room.form], tree.sizes
    inner = (_held(tree.forms[one], smalls, sizes) for one, smalls in zip(form.halves, parts, strict=True))
    count = _held(form, room.smalls, sizes) - sum(inner)
    large = count - (room.smalls - sum(parts))
    return [(number + i, sizes.large - (i >= large)) for i in range(count)]


def _rooms_inside(tree: _Tree, room: _Room, parts: Sequence[int], own: Sequence[Piece]) -> Iterator[_Room]:
    """Yield the rooms of the halves of a room, its crossing ranks dealt to what these have free.

    A rank that goes on from the first half takes the first units of the second, so that it has neighbours.
    """
    form = tree.forms[room.form]
    queue = deque((*room.head, *own, *room.tail))
    begun = {rank for rank, _ in room.head}
    start = room.start
    for number, smalls in zip(form.halves, parts, strict=True):
        inner = tree.forms[number]
        free = inner.size - _held(inner, smalls, tree.sizes) * tree.sizes.large + smalls
        pieces = _take(queue, free)
        yield _Room(
            form=number,
            start=start,
            smalls=smalls,
            worth=room.worth + form.worth,
            head=tuple(piece for piece in pieces if piece[0] in begun),
            tail=tuple(piece for piece in pieces if piece[0] not in begun),
        )
        begun.update(rank for rank, _ in pieces)
        start += inner.size


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
