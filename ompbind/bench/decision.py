"""What runs next, and what is known: pure functions of the records of a session.

Each round runs all candidates that are left, in random order. A candidate leaves early if it lost every round
clearly against the best one; that claims nothing. After planned rounds (see `comparing`) the session stops if
the choice is clear. The choice is the simplest of the candidates that are as good as the best by the median.

A group with several numbers of ranks has one choice, which has two effects: that of binding, compared with
the unbound candidate with as many ranks, and that of the number of ranks, compared with the same binding and
the first number.
"""

import math
import statistics

from ompbind.bench.comparing import BETTER, NOT_BETTER, Group, RunIndex, make_groups, make_looks, make_parts
from ompbind.bench.records import (
    Comparison,
    ComparisonResult,
    Conclusion,
    GroupConclusion,
    NextRound,
    Session,
)
from ompbind.bench.remarks import make_remarks
from ompbind.cpuset import count

FIRST_DROP = 6  # the first round after which candidates can leave

CLEAR_LOSS = math.log(1.1)
"""A candidate that lost every round leaves if its median log ratio is above this, and above what matters."""


class GroupState:
    """A group and its runs: why contenders have left it, which remain, and the choice, "" for none."""

    def __init__(self, group: Group, index: RunIndex) -> None:
        self.group = group
        self.index = index
        self.dropped = self._find_dropped()
        self.remaining = tuple(name for name in group.contenders if name not in self.dropped)
        self.choice = self._choose()

    def _find_dropped(self) -> dict[str, str]:
        """Return the reasons by contender: each is judged by the rounds up to its last round.

        Later runs do not count: a candidate that has left stays away, also if the best candidate fails later.
        A contender stays as long as a remaining contender is compared with it.
        """
        group, index = self.group, self.index
        last = {name: index.last.get(name, 0) for name in group.contenders}
        leaders = {number: self._find_leader(number) for number in {*last.values()}}
        reasons = {}
        for name, number in last.items():
            leader = leaders[number]
            lost = [ratio for at, ratio in index.find_ratios(leader, name).items() if at <= number]
            is_clear = len(lost) >= FIRST_DROP and min(lost) > 0
            if is_clear and statistics.median(lost) > max(CLEAR_LOSS, index.matters):
                reasons[name] = f"{leader} was better in all {len(lost)} rounds"
        staying = (name for name in group.contenders if name not in reasons)
        needed = {other for name in staying for other in group.references[name]}
        return {name: reason for name, reason in reasons.items() if name not in needed}

    def _find_leader(self, last: int) -> str:
        """Return the best candidate in a round, by the median of all rounds up to it; "" without any."""
        ran = [each.name for each in self.group.candidates if last in self.index.logs.get(each.name, ())]
        medians = {}
        for name in ran:
            ratios = self.index.find_ratios(name, ran[0])
            medians[name] = statistics.median(ratio for number, ratio in ratios.items() if number <= last)
        return max(medians, key=medians.__getitem__, default="")

    def _choose(self) -> str:
        """Return the simplest candidate that is as good as the best by the median; "" without any runs."""
        reference, index = self.group.reference, self.index
        ratios = {name: index.find_ratios(name, reference).values() for name in self.remaining}
        medians = {name: statistics.median(found) for name, found in ratios.items() if found}
        if not medians:
            return ""
        medians = {reference: 0.0, **medians}
        best = max(medians, key=medians.__getitem__)
        lost = {name: index.find_ratios(best, name).values() for name in medians}
        return next(
            name
            for name in medians  # the simplest first
            if name == best or (lost[name] and statistics.median(lost[name]) < index.matters)
        )

    @property
    def is_over(self) -> bool:
        """Whether the group needs no further rounds."""
        most = self.index.session.rules.max_rounds
        last = self.index.find_last((self.group.reference, *self.remaining))
        return not self.remaining or last >= most or (last in make_looks(most) and self._is_decided())

    def _is_decided(self) -> bool:
        """Return whether the choice is clear.

        It is better than what it is compared with, no other candidate can be better by what matters, and it
        is known of each simpler candidate whether it is as good.
        """
        reference, choice, judge = self.group.reference, self.choice, self.index.judge
        if choice == reference or not choice:
            return all(judge(name, reference) in NOT_BETTER for name in self.remaining)
        if any(judge(choice, other) != ComparisonResult.BEST for other in self.group.references[choice]):
            return False
        if any(self.index.can_be_better(other, choice) for other in self.remaining if other != choice):
            return False
        simpler = self.remaining[: self.remaining.index(choice)]
        return all(judge(choice, other) != ComparisonResult.UNKNOWN for other in simpler)

    def recommend(self) -> str:
        """Return the candidate to recommend, "" if nothing is known.

        If no candidate is better than the reference, it is the reference: nothing is simpler than no change.
        If only the number of ranks is known to be better, it is the unbound candidate with this number.
        """
        reference, choice = self.group.reference, self.choice
        if choice == reference or not choice:
            open_ = any(self.index.can_be_better(name, reference) for name in self.remaining)
            return "" if open_ else reference
        for name in (choice, *self.group.references[choice]):
            references = self.group.references[name]
            if references and all(self.index.judge(name, other) in BETTER for other in references):
                return name
        return ""


def _make_states(session: Session) -> tuple[RunIndex, list[GroupState]]:
    index = RunIndex(session)
    return index, [GroupState(group, index) for group in make_groups(session, index.disqualified)]


def find_next(session: Session) -> NextRound:
    """Return the next round: which candidates run in it, or that the session is over.

    A round that was interrupted is returned again, with the candidates that did not run in it. The answer
    depends on the runs alone, so a resumed session continues as if it had not stopped.
    """
    last = session.runs[-1].round if session.runs else 0
    ran = {run.candidate for run in session.runs if run.round == last}
    if ran and any(candidate.name not in ran for candidate in session.candidates):
        before = session.replace(runs=tuple(run for run in session.runs if run.round < last))
        planned = _plan_round(before)
        if missing := tuple(name for name in planned.candidates if name not in ran):
            return planned.replace(candidates=missing, dropped=())
    following = _plan_round(session)
    return following.replace(dropped=tuple(pair for pair in following.dropped if pair[0] in ran))


def _plan_round(session: Session) -> NextRound:
    """Return the round that follows; `dropped` are all candidates that do not run any more."""
    names = tuple(candidate.name for candidate in session.candidates)
    if not session.runs:
        return NextRound(round=0, candidates=names, ended="" if names else "no candidates")
    index, states = _make_states(session)
    running = {
        name for each in states if not each.is_over for name in (each.group.reference, *each.remaining)
    }
    gone = {**index.disqualified}
    for each in states:
        gone |= each.dropped
    ended = ""
    if not running:
        compared = [each for each in states if each.group.contenders]
        ended = f"not decided after {count(session.rules.max_rounds, 'round')}"
        if all(each.recommend() for each in compared):
            ended = "decided" if compared else "no candidate is left to compare"
    return NextRound(
        round=1 + index.find_last(names),
        candidates=tuple(name for name in names if name in running),
        dropped=tuple(gone.items()),
        ended=ended,
    )


def conclude(session: Session) -> Conclusion:
    """Return what is known from the runs so far, at any moment of a session.

    A session that was interrupted between two looks uses the look that did not take place, so its error is
    within the planned error. That does not hold for a session that is stopped because of its results.
    """
    groups: list[GroupConclusion] = []
    index, states = _make_states(session)
    for each in states:
        recommended = each.recommend()
        for part in make_parts(each.group, recommended or each.choice or each.group.reference):
            names = [candidate.name for candidate in part.candidates]
            compared = (_compare(each, part, name, recommended) for name in names)
            groups.append(
                GroupConclusion(
                    ranks=part.ranks,
                    reference=part.reference,
                    comparisons=tuple(sorted(compared, key=_get_order)),
                    choice=recommended if recommended in names else "",
                )
            )
    return Conclusion(groups=tuple(groups), remarks=make_remarks(index, groups))


def _get_order(comparison: Comparison) -> tuple[int, float]:
    """Return a key that sorts the best first, candidates that do not run any more last."""
    last = (ComparisonResult.DROPPED, ComparisonResult.DISQUALIFIED)
    if comparison.result in last:
        return 2 + last.index(comparison.result), -(comparison.ratio or 0)
    ratio = 1.0 if comparison.result == ComparisonResult.REFERENCE else comparison.ratio or 0
    return int(comparison.result != ComparisonResult.BEST), -ratio


def _compare(state: GroupState, part: Group, name: str, recommended: str) -> Comparison:
    index, values = state.index, state.index.values.get(name)
    median = statistics.median(values) if values else None
    found = Comparison(candidate=name, result=ComparisonResult.REFERENCE, median=median)
    if name in index.disqualified:
        return found.replace(result=ComparisonResult.DISQUALIFIED, reason=index.disqualified[name])
    if name != part.reference:
        evidence, result = index.compare(name, part.reference), index.judge(name, part.reference)
        if result == ComparisonResult.BEST and name != recommended:
            result = ComparisonResult.FASTER
        unknown = result == ComparisonResult.UNKNOWN
        more = index.estimate_more_rounds(evidence) if unknown else None
        found = found.replace(result=result, more_rounds=more)
        if evidence:
            ends = evidence.interval and (math.exp(evidence.interval[0]), math.exp(evidence.interval[1]))
            found = found.replace(rounds=evidence.rounds, ratio=math.exp(evidence.median), interval=ends)
    if name in state.dropped:
        reason = state.dropped[name]
        return found.replace(result=ComparisonResult.DROPPED, more_rounds=None, reason=reason)
    return found
