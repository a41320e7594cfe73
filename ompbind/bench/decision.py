"""What runs next, and what is known: pure functions of the records of a session.

The rounds of the *choice* run all candidates, and name one for each group. The rounds of the *confirmation*
run only this candidate and the reference, and the published ratio comes from these alone. Groups that need no
choice wait for the confirmation. Both phases look only after planned rounds (see `comparing`).
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from ompbind.bench.choice import Choice, find_open, find_simplest_leader, make_choice
from ompbind.bench.comparing import (
    BETTER,
    DECIDED,
    NOT_BETTER,
    Criterion,
    Evidence,
    Members,
    RunIndex,
    count_comparisons,
    estimate_more_rounds,
    find_last_round,
    judge,
    make_criterion,
    make_evidence,
    make_groups,
    make_index,
    make_looks,
)
from ompbind.bench.records import (
    Comparison,
    ComparisonResult,
    Conclusion,
    Group,
    NextRound,
    Phase,
    Remark,
    Rules,
    Run,
    Session,
)
from ompbind.bench.remarks import make_remarks
from ompbind.cpuset import count
from ompbind.record import Record


class _State(Record):
    """A session, its groups, the choice of each, and the criteria of both phases."""

    rules: Rules
    index: RunIndex
    groups: tuple[Members, ...]
    choices: tuple[Choice, ...]
    choosing: Criterion
    confirming: Criterion

    def list_choices(self) -> list[tuple[Members, Choice]]:
        """Return the groups that have a chosen candidate, each with its choice."""
        pairs = zip(self.groups, self.choices, strict=True)
        return [(group, choice) for group, choice in pairs if choice.candidate]

    def judge_choice(self, group: Members, choice: Choice) -> ComparisonResult:
        """Return what the fresh rounds say about the choice of a group."""
        ratios = self.index.compare(Phase.CONFIRMATION, choice.candidate, group.reference)
        return judge(make_evidence(ratios.values(), self.confirming), self.confirming)


def _make_state(session: Session) -> _State:
    index = make_index(session)
    groups = make_groups(session, index)
    choosing = make_criterion(session.rules, count_comparisons(session, groups))
    choices = tuple(make_choice(group, index, session.rules, choosing) for group in groups)
    return _State(
        rules=session.rules,
        index=index,
        groups=groups,
        choices=choices,
        choosing=choosing,
        confirming=make_criterion(session.rules, len(groups)),
    )


def find_next(session: Session) -> NextRound:
    """Return the next round: which candidates run in it, or that the session is over.

    A round that was interrupted is returned again, with the candidates that did not run in it. The answer
    depends on the runs alone, so a resumed session continues as if it had not stopped.
    """
    before, ran = _split_last_round(session)
    if missing := _find_missing(before, ran):
        return missing
    following = _plan_round(session)
    names = {run.candidate for run in ran}
    gone = tuple(pair for pair in following.dropped if pair[0] in names)
    return following.replace(dropped=gone)


def _find_missing(before: Session, ran: Sequence[Run]) -> NextRound | None:
    """Return the rest of the last round, None if it is complete.

    A round with as many runs as the round before is complete, because candidates are never added in a phase.
    """
    previous = _split_last_round(before)[1]
    if not ran or (previous and previous[0].phase == ran[0].phase and len(previous) == len(ran)):
        return None
    planned = _plan_round(before)
    names = {run.candidate for run in ran}
    missing = tuple(name for name in planned.candidates if name not in names)
    is_same = (planned.phase, planned.round) == (ran[0].phase, ran[0].round)
    return planned.replace(candidates=missing, dropped=()) if missing and is_same else None


def _split_last_round(session: Session) -> tuple[Session, tuple[Run, ...]]:
    """Return the session before its last round, and the runs of that round."""
    runs = session.runs
    kept = len(runs)
    while kept and (runs[kept - 1].phase, runs[kept - 1].round) == (runs[-1].phase, runs[-1].round):
        kept -= 1
    return session.replace(runs=runs[:kept]), runs[kept:]


def _plan_round(session: Session) -> NextRound:
    """Return the round that follows; `dropped` are all candidates that do not run any more."""
    if not session.runs:
        names = tuple(candidate.name for candidate in session.candidates)
        return NextRound(
            phase=Phase.WARM_UP, round=0, candidates=names, ended="" if names else "no candidates"
        )
    state = _make_state(session)
    gone = [*state.index.disqualified.items()]
    gone += [pair for choice in state.choices for pair in choice.dropped.items()]
    choosing = [
        name
        for group, choice in zip(state.groups, state.choices, strict=True)
        if not choice.made
        for name in (group.reference, *choice.remaining)
    ]
    confirming = choosing or [name for names in _find_confirmed(state) for name in names]
    phase = Phase.CHOICE if choosing else Phase.CONFIRMATION
    chosen = set(confirming)
    names = tuple(candidate.name for candidate in session.candidates if candidate.name in chosen)
    number = 1 + state.index.find_last(phase, (candidate.name for candidate in session.candidates))
    ended = "" if names else _explain_end(state)
    return NextRound(phase=phase, round=number, candidates=names, dropped=tuple(gone), ended=ended)


def _find_confirmed(state: _State) -> list[tuple[str, str]]:
    """Return the choice and the reference of each group whose confirmation needs more rounds."""
    last_round = find_last_round(state.rules.max_rounds)
    looks = make_looks(state.rules.max_rounds)
    pairs = []
    for group, choice in state.list_choices():
        last = state.index.find_last(Phase.CONFIRMATION, (group.reference,))
        decided = last in looks and state.judge_choice(group, choice) in DECIDED
        if last < last_round and not decided:
            pairs.append((choice.candidate, group.reference))
    return pairs


def _explain_end(state: _State) -> str:
    if not any(group.contenders for group in state.groups):
        return "no candidate is left to compare"
    results = {state.judge_choice(group, choice) for group, choice in state.list_choices()}
    if ComparisonResult.UNKNOWN not in results:
        return "decided"
    return f"not decided after {count(find_last_round(state.rules.max_rounds), 'round')}"


def conclude(session: Session) -> Conclusion:
    """Return what is known from the runs so far, at any moment of a session.

    A session that was interrupted between two looks uses the look that did not take place, so its error is
    within the planned error. That does not hold for a session that is stopped because of its results.
    """
    state = _make_state(session)
    groups = tuple(
        _conclude_group(state, group, choice)
        for group, choice in zip(state.groups, state.choices, strict=True)
    )
    remarks = (*_remark_simpler(state, groups), *make_remarks(session, state.index, groups))
    return Conclusion(groups=groups, remarks=remarks)


def _remark_simpler(state: _State, groups: Iterable[Group]) -> Iterator[Remark]:
    """Yield the recommended candidates that are not known to be better than simpler candidates."""
    for members, choice, group in zip(state.groups, state.choices, groups, strict=True):
        if group.choice in choice.remaining:
            simpler = members.find_simpler(group.choice, choice.remaining)
            names = find_open(group.choice, simpler, state.index, state.choosing)
            if names:
                verb = "has" if len(names) == 1 else "have"
                text = f"not known to be better than {' and '.join(names)}, which {verb} fewer options"
                yield Remark(code="simpler", candidate=group.choice, text=text)


def _conclude_group(state: _State, group: Members, choice: Choice) -> Group:
    medians = {each.name: _find_median(state, each.name) for each in group.candidates}
    compared = [_compare(state, group, choice, each.name) for each in group.candidates]
    comparisons = [each.replace(median=medians[each.candidate]) for each in compared]
    comparisons.sort(key=_get_order)
    return Group(
        ranks=group.ranks,
        reference=group.reference,
        comparisons=tuple(comparisons),
        choice=_recommend(state, group, choice, comparisons),
    )


def _find_median(state: _State, name: str) -> float | None:
    values = state.index.values.get(name, ())
    return statistics.median(values) if values else None


def _get_order(comparison: Comparison) -> tuple[int, float]:
    """Return a key that sorts the best first, candidates that do not run any more last."""
    last = (ComparisonResult.DROPPED, ComparisonResult.DISQUALIFIED)
    if comparison.result in last:
        return 2 + last.index(comparison.result), -(comparison.ratio or 0)
    ratio = 1.0 if comparison.result == ComparisonResult.REFERENCE else comparison.ratio or 0
    return int(comparison.result != ComparisonResult.BEST), -ratio


def _compare(state: _State, group: Members, choice: Choice, name: str) -> Comparison:
    """Return the comparison of a candidate with the reference, without its median."""
    if name in state.index.disqualified:
        reason = state.index.disqualified[name]
        return Comparison(candidate=name, result=ComparisonResult.DISQUALIFIED, reason=reason)
    if name == group.reference:
        return Comparison(candidate=name, result=ComparisonResult.REFERENCE)
    if name == choice.candidate:
        confirmed = _compare_in(state, group, name, Phase.CONFIRMATION)
        if confirmed.interval or not state.index.find_last(Phase.CHOICE, (name,)):
            return confirmed
    chosen = _compare_in(state, group, name, Phase.CHOICE)
    if name in choice.dropped:
        reason = choice.dropped[name]
        return chosen.replace(result=ComparisonResult.DROPPED, more_rounds=None, reason=reason)
    return chosen


def _compare_in(state: _State, group: Members, name: str, phase: Phase) -> Comparison:
    """Return the comparison in the rounds of one phase. Only fresh rounds show that the choice is best."""
    fresh = phase == Phase.CONFIRMATION
    criterion = state.confirming if fresh else state.choosing
    evidence = make_evidence(state.index.compare(phase, name, group.reference).values(), criterion)
    result = judge(evidence, criterion)
    if result == ComparisonResult.BEST and not fresh:
        result = ComparisonResult.FASTER
    unknown = result == ComparisonResult.UNKNOWN
    return Comparison(
        candidate=name,
        result=result,
        rounds=evidence.rounds if evidence else 0,
        ratio=math.exp(evidence.median) if evidence else None,
        interval=_make_ratios(evidence),
        fresh=fresh and evidence is not None,
        more_rounds=estimate_more_rounds(evidence, criterion) if unknown else None,
    )


def _make_ratios(evidence: Evidence | None) -> tuple[float, float] | None:
    if evidence is None or evidence.interval is None:
        return None
    return math.exp(evidence.interval[0]), math.exp(evidence.interval[1])


def _recommend(state: _State, group: Members, choice: Choice, comparisons: list[Comparison]) -> str:
    """Return the candidate to recommend, "" if nothing is known.

    If no candidate is better than the reference, it is the reference: nothing is simpler than no change.
    """
    results = {each.candidate: each.result for each in comparisons}
    better = [name for name in group.contenders if results[name] in BETTER]
    if choice.candidate in better:
        return choice.candidate
    if choice.made and (not choice.candidate or results[choice.candidate] in NOT_BETTER):
        return group.reference
    if choice.made:
        return ""
    return find_simplest_leader(group, state.index, state.choosing, better)
