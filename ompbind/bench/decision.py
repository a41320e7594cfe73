"""What runs next, and what is known: pure functions of the records of a session.

The rounds of the *choice* run all candidates, and name one for each group. The rounds of the *confirmation*
run only this candidate and its references, and the published ratios come from these alone. Groups that need
no choice wait for the confirmation. Both phases look only after planned rounds (see `comparing`). The ratio
of a chosen candidate is optimistic in the rounds of the choice, because the best of many also had luck.

A group with several numbers of ranks has one choice among all candidates, which has two references: with as
many ranks the unbound candidate, which shows the effect of binding; with the same binding the candidate with
the first number of ranks, which shows the effect of this number.
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
    make_parts,
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
"""A candidate that lost every round, in the median by more than this log ratio, is dropped, but …"""

CERTAIN_ERRORS = 4
"""… only if the median is also so many standard errors above 0: after few noisy rounds a loss is bad luck."""


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
    names = _list_eligible(state.remaining, group, index, criterion)
    logs = {name: index.compare(Phase.CHOICE, name, group.reference).values() for name in names}
    results = {name: judge(make_evidence(values, criterion), criterion) for name, values in logs.items()}
    leaders = _find_leaders(group.reference, names, index, criterion)
    best = leaders[-1] if leaders else names[0]
    if results[best] in NOT_BETTER and (at_end or set(results.values()) <= NOT_BETTER):
        return state.replace(made=True)
    is_best = results[best] == ComparisonResult.BEST and _is_clear(best, names, index, criterion)
    simpler = group.find_simpler(best, names)
    if at_end or (is_best and not find_open(best, simpler, index, criterion)):
        return state.replace(candidate=leaders[0] if leaders else best, made=True)
    return state


def _list_eligible(
    remaining: tuple[str, ...], group: Group, index: RunIndex, criterion: Criterion
) -> tuple[str, ...]:
    """Return the candidates that can be chosen: not both of a candidate and its reference.

    The rounds of the confirmation compare these two. A reference can be chosen if all others with as many
    ranks are not better.
    """
    references = set(group.references.values())
    worse = {
        name
        for name in remaining
        if (own := group.references[name]) not in (name, group.reference)
        and judge(_compare_choice(name, own, index, criterion), criterion) in NOT_BETTER
    }
    waiting = {group.references[name] for name in remaining if name not in worse | references}
    return tuple(name for name in remaining if name not in worse | waiting)


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
    """Return the reasons by contender: each is judged by the rounds up to its last round.

    A reference is needed as long as a candidate with as many ranks remains.
    """
    last = {name: index.find_last(Phase.CHOICE, (name,)) for name in group.contenders}
    leaders = {
        number: _find_leader(group, index, number) for number in {*last.values()} if number >= FIRST_DROP
    }
    noise = {number: _measure_noise(group, index, leader, number) for number, leader in leaders.items()}
    reasons = {}
    for name, number in last.items():
        lost = index.compare(Phase.CHOICE, leaders[number], name) if number in leaders else {}
        if len(lost) < FIRST_DROP or min(lost.values()) <= 0:
            continue
        median = statistics.median(lost.values())
        if median > max(HOPELESS, CERTAIN_ERRORS * noise[number] / math.sqrt(len(lost))):
            by = f"with a median ratio of {math.exp(median):.2f}"
            reasons[name] = f"{leaders[number]} was better in all {len(lost)} rounds, {by}"
    needed = {own for name, own in group.references.items() if name != own and name not in reasons}
    return {name: reason for name, reason in reasons.items() if name not in needed}


def _measure_noise(group: Group, index: RunIndex, leader: str, last: int) -> float:
    """Return the standard deviation of the log ratios to the leader within rounds, as all candidates have it.

    It comes from the median deviation, so that outliers hardly count.
    """
    deviations = []
    for each in group.candidates:
        ratios = index.compare(Phase.CHOICE, leader, each.name)
        if each.name != leader and last in ratios:
            logs = [log for number, log in ratios.items() if number <= last]
            median = statistics.median(logs)
            deviations += [abs(log - median) for log in logs]
    return 1.4826 * statistics.median(deviations) if deviations else 0.0


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
    """A session, its groups with the choice of each, and the criteria of both phases."""

    rules: Rules
    index: RunIndex
    choices: tuple[tuple[Group, Choice], ...]
    choosing: Criterion
    confirming: Criterion

    def list_confirming(self, group: Group, choice: Choice) -> list[Group]:
        """Return the parts of a group in which the choice is compared with the reference."""
        parts = make_parts(group, choice.candidate, self.index) if choice.candidate else ()
        return [part for part in parts if choice.candidate in part.contenders]

    def judge_choice(self, group: Group, choice: Choice) -> list[ComparisonResult]:
        """Return what the fresh rounds say about the choice of a group, for each part."""
        results = []
        for part in self.list_confirming(group, choice):
            ratios = self.index.compare(Phase.CONFIRMATION, choice.candidate, part.reference)
            results.append(judge(make_evidence(ratios.values(), self.confirming), self.confirming))
        return results


def _make_state(session: Session) -> _State:
    index = make_index(session)
    groups = make_groups(session, index)
    choosing = make_criterion(session.rules, count_comparisons(session, groups))
    confirmed = sum(1 if group.ranks is not None else 2 for group in groups)
    return _State(
        rules=session.rules,
        index=index,
        choices=tuple((group, make_choice(group, index, session.rules, choosing)) for group in groups),
        choosing=choosing,
        confirming=make_criterion(session.rules, confirmed),
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

    A round with the candidates of the round before is complete: only a failed candidate is replaced.
    """
    previous = _split_last_round(before)[1]
    names = {run.candidate for run in ran}
    is_same_phase = ran and previous and previous[0].phase == ran[0].phase
    if not ran or (is_same_phase and {run.candidate for run in previous} == names):
        return None
    planned = _plan_round(before)
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
    if session.runs[-1].phase is Phase.CHOICE:  # a dropped candidate can be a reference later
        gone += [pair for _, choice in state.choices for pair in choice.dropped.items()]
    choosing = [
        name
        for group, choice in state.choices
        if not choice.made
        for name in (group.reference, *choice.remaining)
    ]
    chosen = set(choosing or _list_confirmed(state))
    phase = Phase.CHOICE if choosing else Phase.CONFIRMATION
    names = tuple(candidate.name for candidate in session.candidates if candidate.name in chosen)
    number = 1 + state.index.find_last(phase, (candidate.name for candidate in session.candidates))
    ended = "" if names else _explain_end(state)
    return NextRound(phase=phase, round=number, candidates=names, dropped=tuple(gone), ended=ended)


def _list_confirmed(state: _State) -> list[str]:
    """Return the choice and the references of each group whose confirmation needs more rounds."""
    last_round = find_last_round(state.rules.max_rounds)
    looks = make_looks(state.rules.max_rounds)
    names: list[str] = []
    for group, choice in state.choices:
        last = state.index.find_last(Phase.CONFIRMATION, (each.name for each in group.candidates))
        decided = last in looks and DECIDED.issuperset(state.judge_choice(group, choice))
        parts = state.list_confirming(group, choice)
        if parts and last < last_round and not decided:
            names += [choice.candidate, *(part.reference for part in parts)]
    return names


def _explain_end(state: _State) -> str:
    if not any(group.contenders for group, _ in state.choices):
        return "no candidate is left to compare"
    results = {result for pair in state.choices for result in state.judge_choice(*pair)}
    if ComparisonResult.UNKNOWN not in results:
        return "decided"
    return f"not decided after {count(find_last_round(state.rules.max_rounds), 'round')}"


def conclude(session: Session) -> Conclusion:
    """Return what is known from the runs so far, at any moment of a session.

    A session that was interrupted between two looks uses the look that did not take place, so its error is
    within the planned error. That does not hold for a session that is stopped because of its results.
    """
    state = _make_state(session)
    groups: list[GroupConclusion] = []
    remarks: list[Remark] = []
    for group, choice in state.choices:
        recommended = _recommend(state, group, choice)
        shown = choice.candidate or recommended or group.reference
        parts = make_parts(group, shown, state.index)
        groups += [_conclude_part(state, part, choice, recommended) for part in parts]
        remarks += _remark_simpler(state, group, choice, recommended)
    remarks += make_remarks(session, state.index, tuple(groups))
    return Conclusion(groups=tuple(groups), remarks=tuple(remarks))


def _remark_simpler(state: _State, group: Group, choice: Choice, recommended: str) -> Iterator[Remark]:
    """Yield the recommended candidate if it is not known to be better than simpler candidates.

    Its own reference is compared with it in the rounds of the confirmation.
    """
    if recommended in choice.remaining:
        simpler = group.find_simpler(recommended, choice.remaining)
        others = [name for name in simpler if name != group.references[recommended]]
        names = find_open(recommended, others, state.index, state.choosing)
        if names:
            verb = "has" if len(names) == 1 else "have"
            text = f"not known to be better than {' and '.join(names)}, which {verb} fewer options"
            yield Remark(code="simpler", candidate=recommended, text=text)


def _conclude_part(state: _State, part: Group, choice: Choice, recommended: str) -> GroupConclusion:
    comparisons = []
    for candidate in part.candidates:
        values = state.index.values.get(candidate.name, ())
        median = statistics.median(values) if values else None
        comparisons.append(_compare(state, part, choice, candidate.name).replace(median=median))
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


def _recommend(state: _State, group: Group, choice: Choice) -> str:
    """Return the candidate to recommend, "" if nothing is known.

    If no candidate is better than the reference, it is the reference: nothing is simpler than no change. If
    only the number of ranks is known to be better, it is the unbound candidate with this number.
    """
    if not choice.made:
        better = [name for name in choice.remaining if _is_better(state, group, name)]
        return find_simplest_leader(group, state.index, state.choosing, better)
    if not choice.candidate:
        return group.reference
    parts = state.list_confirming(group, choice)
    results = [_compare(state, part, choice, choice.candidate).result for part in parts]
    if BETTER.issuperset(results):
        evidence = _compare_choice(choice.candidate, group.reference, state.index, state.choosing)
        is_compared = group.reference in {part.reference for part in parts}
        return choice.candidate if is_compared or judge(evidence, state.choosing) in BETTER else ""
    if NOT_BETTER.issuperset(results):
        return group.reference
    number = next((at for at, part in enumerate(parts) if part.ranks is None), None)
    if number is None or results[number] == ComparisonResult.UNKNOWN:
        return ""
    if results[number] in BETTER:
        return group.references[choice.candidate]
    return parts[number].reference if BETTER.issuperset(results[:number]) else ""


def _is_better(state: _State, group: Group, name: str) -> bool:
    """Return whether the rounds of the choice show that a candidate is better than its references."""
    references = {group.reference, group.references[name]} - {name}
    evidence = [_compare_choice(name, other, state.index, state.choosing) for other in references]
    return all(judge(each, state.choosing) in BETTER for each in evidence)
