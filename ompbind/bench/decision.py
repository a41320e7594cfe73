"""What runs next, and what is known: pure functions of the records of a session.

The rounds of the *choice* run all candidates, and name one for each group. The rounds of the *confirmation*
run only this candidate and the reference, and the published ratio comes from these alone. Groups that need no
choice wait for the confirmation. Both phases look only after planned rounds (see `comparing`). The ratio of a
chosen candidate is optimistic in the rounds of the choice, because the best of many candidates also had luck.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.bench.comparing import (
    BETTER,
    DECIDED,
    NOT_BETTER,
    Criterion,
    Evidence,
    Group,
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
    GroupConclusion,
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

FIRST_DROP = 4
"""The first round after which candidates can be dropped."""

HOPELESS = math.log(1.1)
"""A candidate that lost every round, in the median by more than this log ratio, is dropped."""


class Choice(Record):
    """The state of the choice in a group.

    `made` is whether the group needs no further rounds of the choice. Then `candidate` is the chosen
    contender, "" if no contender is better than the reference. `remaining` are the contenders that were not
    dropped, `dropped` the others with reasons.
    """

    remaining: tuple[str, ...]
    dropped: Mapping[str, str]
    candidate: str = ""
    made: bool = False


def make_choice(group: Group, index: RunIndex, rules: Rules, criterion: Criterion) -> Choice:
    """Return the choice of a group after its last round.

    A group with one remaining contender has nothing to choose: all its further rounds are fresh. A choice
    that is being confirmed is final, also if a resumed session may have more rounds.
    """
    dropped = _find_dropped(group, index)
    remaining = tuple(name for name in group.contenders if name not in dropped)
    state = Choice(remaining=remaining, dropped=dropped)
    if len(remaining) < 2:
        return state.replace(candidate="".join(remaining), made=True)
    last = index.find_last(Phase.CHOICE, (group.reference, *remaining))
    is_confirming = any(index.find_last(Phase.CONFIRMATION, (name,)) for name in remaining)
    at_end = last >= find_last_round(rules.max_rounds) or is_confirming
    if not at_end and last not in make_looks(rules.max_rounds):
        return state
    return _choose(state, group, index, criterion, at_end=at_end)


def _choose(state: Choice, group: Group, index: RunIndex, criterion: Criterion, *, at_end: bool) -> Choice:
    """Return the choice at a look: the simplest of the candidates that are as good as the best.

    At the end there is a choice in any case, except if the best candidate is not better than the reference.
    """
    logs = {name: index.compare(Phase.CHOICE, name, group.reference).values() for name in state.remaining}
    results = {name: judge(make_evidence(values, criterion), criterion) for name, values in logs.items()}
    leaders = _find_leaders(group.reference, state.remaining, index, criterion)
    best = leaders[-1] if leaders else state.remaining[0]
    if results[best] in NOT_BETTER and (at_end or set(results.values()) <= NOT_BETTER):
        return state.replace(made=True)
    is_best = results[best] == ComparisonResult.BEST and _is_clear(best, state.remaining, index, criterion)
    simpler = group.find_simpler(best, state.remaining)
    if at_end or (is_best and not find_open(best, simpler, index, criterion)):
        return state.replace(candidate=leaders[0] if leaders else best, made=True)
    return state


def find_simplest_leader(group: Group, index: RunIndex, criterion: Criterion, names: Sequence[str]) -> str:
    """Return the simplest candidate that is as good as the best of `names`, by the median; "" without any."""
    leaders = _find_leaders(group.reference, names, index, criterion)
    return leaders[0] if leaders else ""


def find_open(name: str, others: Iterable[str], index: RunIndex, criterion: Criterion) -> list[str]:
    """Return the other candidates for which the rounds do not show whether `name` is better."""
    results = {other: judge(_compare_choice(name, other, index, criterion), criterion) for other in others}
    return [other for other, result in results.items() if result == ComparisonResult.UNKNOWN]


def _is_clear(best: str, others: Iterable[str], index: RunIndex, criterion: Criterion) -> bool:
    """Return whether no other contender can be better by what matters."""
    for other in others:
        evidence = _compare_choice(best, other, index, criterion)
        low = evidence.interval[0] if evidence and evidence.interval else -math.inf
        if other != best and low <= -criterion.matters:
            return False
    return True


def _compare_choice(name: str, other: str, index: RunIndex, criterion: Criterion) -> Evidence | None:
    """Return what the rounds of the choice say about two candidates; above 0 `name` is better."""
    return make_evidence(index.compare(Phase.CHOICE, name, other).values(), criterion)


def _find_leaders(reference: str, names: Iterable[str], index: RunIndex, criterion: Criterion) -> list[str]:
    """Return the candidates that are as good as the best by the median: the simplest first, the best last."""
    compared = {name: _compare_choice(name, reference, index, criterion) for name in names}
    medians = {name: evidence.median for name, evidence in compared.items() if evidence}
    if not medians:
        return []
    best = max(medians, key=medians.__getitem__)
    lost = {name: _compare_choice(best, name, index, criterion) for name in medians}
    close = [name for name, evidence in lost.items() if evidence and evidence.median < criterion.matters]
    return [*close, best]


def _find_dropped(group: Group, index: RunIndex) -> dict[str, str]:
    """Return the reasons by contender: each is judged by the rounds up to its last round."""
    last = {name: index.find_last(Phase.CHOICE, (name,)) for name in group.contenders}
    leaders = {
        number: _find_leader(group, index, number) for number in {*last.values()} if number >= FIRST_DROP
    }
    reasons = {}
    for name, number in last.items():
        lost = index.compare(Phase.CHOICE, leaders[number], name) if number in leaders else {}
        if len(lost) < FIRST_DROP or min(lost.values()) <= 0:
            continue
        median = statistics.median(lost.values())
        if median > HOPELESS:
            by = f"{100 * math.expm1(median):.0f} % in the median"
            reasons[name] = f"{leaders[number]} was better in all {len(lost)} rounds, by {by}"
    return reasons


def _find_leader(group: Group, index: RunIndex, last: int) -> str:
    """Return the best candidate in a round, by the median of all rounds up to it; "" without valid runs.

    Later runs do not count, so a dropped candidate stays dropped, also if this leader fails later.
    """
    ran = [each.name for each in group.candidates if last in index.logs.get((Phase.CHOICE, each.name), ())]
    medians = {}
    for name in ran:
        ratios = index.compare(Phase.CHOICE, name, ran[0])
        medians[name] = statistics.median(ratio for number, ratio in ratios.items() if number <= last)
    return max(medians, key=medians.__getitem__, default="")


class _State(Record):
    """A session, its groups, the choice of each, and the criteria of both phases."""

    rules: Rules
    index: RunIndex
    groups: tuple[Group, ...]
    choices: tuple[Choice, ...]
    choosing: Criterion
    confirming: Criterion

    def list_choices(self) -> list[tuple[Group, Choice]]:
        """Return the groups that have a chosen candidate, each with its choice."""
        pairs = zip(self.groups, self.choices, strict=True)
        return [(group, choice) for group, choice in pairs if choice.candidate]

    def judge_choice(self, group: Group, choice: Choice) -> ComparisonResult:
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


def _remark_simpler(state: _State, groups: Iterable[GroupConclusion]) -> Iterator[Remark]:
    """Yield the recommended candidates that are not known to be better than simpler candidates."""
    for members, choice, group in zip(state.groups, state.choices, groups, strict=True):
        if group.choice in choice.remaining:
            simpler = members.find_simpler(group.choice, choice.remaining)
            names = find_open(group.choice, simpler, state.index, state.choosing)
            if names:
                verb = "has" if len(names) == 1 else "have"
                text = f"not known to be better than {' and '.join(names)}, which {verb} fewer options"
                yield Remark(code="simpler", candidate=group.choice, text=text)


def _conclude_group(state: _State, group: Group, choice: Choice) -> GroupConclusion:
    comparisons = []
    for candidate in group.candidates:
        values = state.index.values.get(candidate.name, ())
        median = statistics.median(values) if values else None
        comparisons.append(_compare(state, group, choice, candidate.name).replace(median=median))
    comparisons.sort(key=_get_order)
    return GroupConclusion(
        ranks=group.ranks,
        reference=group.reference,
        comparisons=tuple(comparisons),
        choice=_recommend(state, group, choice, comparisons),
    )


def _get_order(comparison: Comparison) -> tuple[int, float]:
    """Return a key that sorts the best first, candidates that do not run any more last."""
    last = (ComparisonResult.DROPPED, ComparisonResult.DISQUALIFIED)
    if comparison.result in last:
        return 2 + last.index(comparison.result), -(comparison.ratio or 0)
    ratio = 1.0 if comparison.result == ComparisonResult.REFERENCE else comparison.ratio or 0
    return int(comparison.result != ComparisonResult.BEST), -ratio


def _compare(state: _State, group: Group, choice: Choice, name: str) -> Comparison:
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


def _compare_in(state: _State, group: Group, name: str, phase: Phase) -> Comparison:
    """Return the comparison in the rounds of one phase. Only fresh rounds show that the choice is best."""
    fresh = phase == Phase.CONFIRMATION
    criterion = state.confirming if fresh else state.choosing
    evidence = make_evidence(state.index.compare(phase, name, group.reference).values(), criterion)
    result = judge(evidence, criterion)
    if result == ComparisonResult.BEST and not fresh:
        result = ComparisonResult.FASTER
    unknown = result == ComparisonResult.UNKNOWN
    interval = evidence.interval if evidence else None
    return Comparison(
        candidate=name,
        result=result,
        rounds=evidence.rounds if evidence else 0,
        ratio=math.exp(evidence.median) if evidence else None,
        interval=interval and (math.exp(interval[0]), math.exp(interval[1])),
        fresh=fresh and evidence is not None,
        more_rounds=estimate_more_rounds(evidence, criterion) if unknown else None,
    )


def _recommend(state: _State, group: Group, choice: Choice, comparisons: list[Comparison]) -> str:
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
