"""The candidates that are compared with each other, and the candidate that they are compared with."""

from collections.abc import Iterable

from ompbind.bench.records import Candidate, Kind, Session
from ompbind.bench.run_index import RunIndex
from ompbind.record import Record

REFERENCE_ORDER = (Kind.UNBOUND, Kind.DEFAULT, Kind.VARIED)
"""The reference of a group is its first candidate that can run, in this order of kinds."""


class Members(Record):
    """The candidates of a group, in the order in which they can be the reference.

    `reference` is "" if all are disqualified. `contenders` are compared with the reference: all others that
    are not disqualified, the simplest first.
    """

    ranks: int | None
    candidates: tuple[Candidate, ...]
    reference: str
    contenders: tuple[str, ...]

    def find_simpler(self, name: str, others: Iterable[str]) -> tuple[str, ...]:
        """Return which other candidates are simpler than a candidate."""
        complexity = {each.name: _get_complexity(each) for each in self.candidates}
        return tuple(other for other in others if complexity[other] < complexity[name])


def make_groups(session: Session, index: RunIndex) -> tuple[Members, ...]:
    """Return the groups in the order of the candidates: one, or one for each number of ranks."""
    if session.rules.same_work:
        ranks = {candidate.ranks for candidate in session.candidates}
        number = ranks.pop() if len(ranks) == 1 else None
        return (_make_members(number, session.candidates, index),) if session.candidates else ()
    numbers = dict.fromkeys(candidate.ranks for candidate in session.candidates)
    return tuple(
        _make_members(number, tuple(each for each in session.candidates if each.ranks == number), index)
        for number in numbers
    )


def count_comparisons(session: Session, groups: tuple[Members, ...]) -> int:
    """Return how many comparisons with a reference were planned at the start of the session."""
    return len(session.candidates) - len(groups)


def _make_members(ranks: int | None, candidates: tuple[Candidate, ...], index: RunIndex) -> Members:
    by_kind = tuple(sorted(candidates, key=lambda each: REFERENCE_ORDER.index(each.kind)))
    able = [each for each in by_kind if each.name not in index.disqualified]
    reference = able[0].name if able else ""
    others = sorted((each for each in able if each.name != reference), key=_get_complexity)
    contenders = tuple(each.name for each in others)
    return Members(ranks=ranks, candidates=by_kind, reference=reference, contenders=contenders)


def _get_complexity(candidate: Candidate) -> tuple[int, bool]:
    """Return a key that sorts simple candidates first: fewest choices, then the default plan."""
    return len(candidate.choices), candidate.kind == Kind.UNBOUND
