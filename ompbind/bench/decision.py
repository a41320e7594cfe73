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
from collections.abc import Mapping

from ompbind.bench.comparing import (
    BETTER,
    NOT_BETTER,
    Criterion,
    Evidence,
    Group,
    RunIndex,
    estimate_more_rounds,
    judge,
    make_criterion,
    make_evidence,
    make_groups,
    make_index,
    make_looks,
    make_median_interval,
    make_parts,
)
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
from ompbind.record import Record

FIRST_DROP = 6
"""The first round after which candidates can leave."""

CLEAR_LOSS = math.log(1.1)
"""A candidate that lost every round leaves if its median log ratio is above this, and above what matters."""


class _GroupState(Record):
    """A group, why contenders have left it, the contenders that remain, and the choice, "" for none."""

    group: Group
    dropped: Mapping[str, str]
    remaining: tuple[str, ...]
    choice: str


class _State(Record):
    """A session, its groups, and how two candidates are compared."""

    session: Session
    index: RunIndex
    criterion: Criterion
    groups: tuple[_GroupState, ...]

    def compare(self, name: str, other: str) -> Evidence | None:
        """Return what the rounds say about two candidates; above 0 `name` is better."""
        return make_evidence(self.index.compare(name, other).values(), self.criterion)

    def judge(self, name: str, other: str) -> ComparisonResult:
        """Return whether a candidate is better than another."""
        return judge(self.compare(name, other), self.criterion)

    def can_be_better(self, name: str, other: str) -> bool:
        """Return whether a candidate can be better than another by what matters."""
        ratios = tuple(self.index.compare(name, other).values())
        interval = make_median_interval(ratios, 2 * self.criterion.error_of_look)  # one side counts
        return interval is None or interval[1] > self.criterion.matters


def _make_state(session: Session) -> _State:
    index, criterion = make_index(session), make_criterion(session)
    groups = []
    for group in make_groups(session, index):
        dropped = _find_dropped(group, index, max(CLEAR_LOSS, criterion.matters))
        remaining = tuple(name for name in group.contenders if name not in dropped)
        choice = _choose(group, remaining, index, criterion)
        groups.append(_GroupState(group=group, dropped=dropped, remaining=remaining, choice=choice))
    return _State(session=session, index=index, criterion=criterion, groups=tuple(groups))


def _find_dropped(group: Group, index: RunIndex, clear_loss: float) -> dict[str, str]:
    """Return the reasons by contender: each is judged by the rounds up to its last round.

    Later runs do not count: a candidate that has left stays away, also if the best candidate fails later. A
    contender stays as long as a remaining contender is compared with it.
    """
    last = {name: index.last.get(name, 0) for name in group.contenders}
    leaders = {number: _find_leader(group, index, number) for number in {*last.values()}}
    reasons = {}
    for name, number in last.items():
        leader = leaders[number]
        lost = [ratio for at, ratio in index.compare(leader, name).items() if at <= number]
        if len(lost) >= FIRST_DROP and min(lost) > 0 and statistics.median(lost) > clear_loss:
            reasons[name] = f"{leader} was better in all {len(lost)} rounds"
    needed = {other for name in group.contenders if name not in reasons for other in group.references[name]}
    return {name: reason for name, reason in reasons.items() if name not in needed}


def _find_leader(group: Group, index: RunIndex, last: int) -> str:
    """Return the best candidate in a round, by the median of all rounds up to it; "" without valid runs."""
    ran = [each.name for each in group.candidates if last in index.logs.get(each.name, ())]
    medians = {}
    for name in ran:
        ratios = index.compare(name, ran[0])
        medians[name] = statistics.median(ratio for number, ratio in ratios.items() if number <= last)
    return max(medians, key=medians.__getitem__, default="")


def _choose(group: Group, remaining: tuple[str, ...], index: RunIndex, criterion: Criterion) -> str:
    """Return the simplest candidate that is as good as the best by the median; "" without any runs."""
    ratios = {name: index.compare(name, group.reference).values() for name in remaining}
    medians = {name: statistics.median(found) for name, found in ratios.items() if found}
    if not medians:
        return ""
    medians = {group.reference: 0.0, **medians}
    best = max(medians, key=medians.__getitem__)
    lost = {name: index.compare(best, name).values() for name in medians}
    return next(
        name
        for name in medians  # the simplest first
        if name == best or (lost[name] and statistics.median(lost[name]) < criterion.matters)
    )


def find_next(session: Session) -> NextRound:
    """Return the next round: which candidates run in it, or that the session is over.

    A round that was interrupted is returned again, with the candidates that did not run in it. The answer
    depends on the runs alone, so a resumed session continues as if it had not stopped.
    """
    last = session.runs[-1].round if session.runs else 0
    ran = {run.candidate for run in session.runs if run.round == last}
    before = session.replace(runs=tuple(run for run in session.runs if run.round < last))
    planned = _plan_round(before) if ran else None
    if planned and (missing := tuple(name for name in planned.candidates if name not in ran)):
        return planned.replace(candidates=missing, dropped=())
    following = _plan_round(session)
    return following.replace(dropped=tuple(pair for pair in following.dropped if pair[0] in ran))


def _plan_round(session: Session) -> NextRound:
    """Return the round that follows; `dropped` are all candidates that do not run any more."""
    names = tuple(candidate.name for candidate in session.candidates)
    if not session.runs:
        return NextRound(round=0, candidates=names, ended="" if names else "no candidates")
    state = _make_state(session)
    running = {
        name
        for each in state.groups
        if each.remaining and not _is_over(state, each)
        for name in (each.group.reference, *each.remaining)
    }
    gone = {**state.index.disqualified}
    for each in state.groups:
        gone |= each.dropped
    return NextRound(
        round=1 + state.index.find_last(names),
        candidates=tuple(name for name in names if name in running),
        dropped=tuple(gone.items()),
        ended="" if running else _explain_end(state),
    )


def _is_over(state: _State, each: _GroupState) -> bool:
    """Return whether a group needs no further rounds."""
    most = state.session.rules.max_rounds
    last = state.index.find_last((each.group.reference, *each.remaining))
    return last >= most or (last in make_looks(most) and _is_decided(state, each))


def _is_decided(state: _State, each: _GroupState) -> bool:
    """Return whether the choice of a group is clear.

    It is better than what it is compared with, no other candidate can be better by what matters, and it is
    known of each simpler candidate whether it is as good.
    """
    group, choice = each.group, each.choice
    if choice == group.reference or not choice:
        return all(state.judge(name, group.reference) in NOT_BETTER for name in each.remaining)
    if any(state.judge(choice, other) != ComparisonResult.BEST for other in group.references[choice]):
        return False
    if any(state.can_be_better(other, choice) for other in each.remaining if other != choice):
        return False
    simpler = each.remaining[: each.remaining.index(choice)]
    return all(state.judge(choice, other) != ComparisonResult.UNKNOWN for other in simpler)


def _explain_end(state: _State) -> str:
    compared = [each for each in state.groups if each.group.contenders]
    if not compared:
        return "no candidate is left to compare"
    if all(_recommend(state, each) for each in compared):
        return "decided"
    return f"not decided after {count(state.session.rules.max_rounds, 'round')}"


def conclude(session: Session) -> Conclusion:
    """Return what is known from the runs so far, at any moment of a session.

    A session that was interrupted between two looks uses the look that did not take place, so its error is
    within the planned error. That does not hold for a session that is stopped because of its results.
    """
    state = _make_state(session)
    groups: list[GroupConclusion] = []
    for each in state.groups:
        recommended = _recommend(state, each)
        parts = make_parts(each.group, recommended or each.choice or each.group.reference, state.index)
        groups += [_conclude_part(state, part, each.dropped, recommended) for part in parts]
    return Conclusion(groups=tuple(groups), remarks=make_remarks(session, state.index, tuple(groups)))


def _recommend(state: _State, each: _GroupState) -> str:
    """Return the candidate to recommend, "" if nothing is known.

    If no candidate is better than the reference, it is the reference: nothing is simpler than no change. If
    only the number of ranks is known to be better, it is the unbound candidate with this number.
    """
    group, choice = each.group, each.choice
    if choice == group.reference or not choice:
        open_ = any(state.can_be_better(name, group.reference) for name in each.remaining)
        return "" if open_ else group.reference
    for name in (choice, *group.references[choice]):
        references = group.references[name]
        if references and all(state.judge(name, other) in BETTER for other in references):
            return name
    return ""


def _conclude_part(
    state: _State, part: Group, dropped: Mapping[str, str], recommended: str
) -> GroupConclusion:
    comparisons = []
    for candidate in part.candidates:
        values = state.index.values.get(candidate.name, ())
        comparison = _compare(state, part, candidate.name, recommended)
        if candidate.name in dropped and comparison.result != ComparisonResult.DISQUALIFIED:
            reason = dropped[candidate.name]
            comparison = comparison.replace(result=ComparisonResult.DROPPED, more_rounds=None, reason=reason)
        comparisons.append(comparison.replace(median=statistics.median(values) if values else None))
    comparisons.sort(key=_get_order)
    return GroupConclusion(
        ranks=part.ranks,
        reference=part.reference,
        comparisons=tuple(comparisons),
        choice=recommended if recommended in {each.name for each in part.candidates} else "",
    )


def _get_order(comparison: Comparison) -> tuple[int, float]:
    """Return a key that sorts the best first, candidates that do not run any more last."""
    last = (ComparisonResult.DROPPED, ComparisonResult.DISQUALIFIED)
    if comparison.result in last:
        return 2 + last.index(comparison.result), -(comparison.ratio or 0)
    ratio = 1.0 if comparison.result == ComparisonResult.REFERENCE else comparison.ratio or 0
    return int(comparison.result != ComparisonResult.BEST), -ratio


def _compare(state: _State, group: Group, name: str, recommended: str) -> Comparison:
    """Return the comparison of a candidate with the reference, without its median."""
    if name in state.index.disqualified:
        reason = state.index.disqualified[name]
        return Comparison(candidate=name, result=ComparisonResult.DISQUALIFIED, reason=reason)
    if name == group.reference:
        return Comparison(candidate=name, result=ComparisonResult.REFERENCE)
    evidence = state.compare(name, group.reference)
    result = judge(evidence, state.criterion)
    unknown = result == ComparisonResult.UNKNOWN
    if result == ComparisonResult.BEST and name != recommended:
        result = ComparisonResult.FASTER
    interval = evidence.interval if evidence else None
    return Comparison(
        candidate=name,
        result=result,
        rounds=evidence.rounds if evidence else 0,
        ratio=math.exp(evidence.median) if evidence else None,
        interval=interval and (math.exp(interval[0]), math.exp(interval[1])),
        more_rounds=estimate_more_rounds(evidence, state.criterion) if unknown else None,
    )
