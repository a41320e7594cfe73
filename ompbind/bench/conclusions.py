"""What is concluded from the runs of a session: records that `decision` makes and `report` renders."""

from enum import StrEnum

from ompbind.bench.records import Phase
from ompbind.record import Record


class ComparisonResult(StrEnum):
    """What is known about a candidate, in comparison with the reference of its group.

    BEST: the choice among all candidates, and faster than the reference by what matters. DROPPED: dropped
    early, which claims nothing. DISQUALIFIED: it failed, or exited differently.
    """

    REFERENCE = "reference"
    BEST = "best"
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no real difference"
    UNKNOWN = "not known yet"
    DROPPED = "dropped early"
    DISQUALIFIED = "disqualified"


class Comparison(Record):
    """A candidate compared with the reference within rounds.

    - `median`: the median of the first metric over its valid runs, None without any
    - `rounds`: how many rounds the ratio is from: rounds in which both runs are valid
    - `ratio`: the median of the ratios within rounds; above 1 the candidate is better, so for times it is the
      time of the reference divided by the time of the candidate. None without rounds, and for the reference
    - `interval`: the confidence interval of that median, (low, high); None if there are too few rounds
    - `fresh`: whether the ratio comes only from rounds after the choice
    - `more_rounds`: about how many more rounds would decide, None if unknown or not needed
    - `reason`: why it was dropped or disqualified
    """

    candidate: str
    result: ComparisonResult
    median: float | None = None
    rounds: int = 0
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    fresh: bool = False
    more_rounds: int | None = None
    reason: str = ""


class Group(Record):
    """Candidates that do the same work: all candidates with one number of ranks, or all candidates.

    `ranks` is None if the group has several numbers of ranks. `reference` is the unbound candidate that the
    others are compared with. `comparisons` are in order, best first. `choice` is the candidate to recommend:
    among candidates without a real difference the simplest; "" if nothing is known.
    """

    ranks: int | None
    reference: str
    comparisons: tuple[Comparison, ...]
    choice: str = ""


class Remark(Record):
    """Something about the runs that the reader should know: outliers, drift, two modes, throttling and so on

    `candidate` is "" for the whole session.
    """

    code: str
    text: str
    candidate: str = ""


class Conclusion(Record):
    """Everything that is concluded from the runs of a session so far."""

    groups: tuple[Group, ...]
    remarks: tuple[Remark, ...] = ()


class NextRound(Record):
    """The next round: which candidates run in it; none if the session is over, and `ended` says why.

    `dropped` are (candidate, reason) pairs of candidates that do not run any more since the last round.
    """

    phase: Phase
    round: int
    candidates: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...] = ()
    ended: str = ""
