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
from collections.abc import Iterator, Sequence

from ompbind.bench.choosing import Choice, compare_choice, find_open, find_simplest_leader, make_choice
from ompbind.bench.comparing import (
    BETTER,
    DECIDED,
    NOT_BETTER,
    Criterion,
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
    if NOT_BETTER.issuperset(results):
        return group.reference
    if group.reference not in {part.reference for part in parts}:
        evidence = compare_choice(choice.candidate, group.reference, state.index, state.choosing)
        if judge(evidence, state.choosing) not in BETTER:
            return ""
    if BETTER.issuperset(results):
        return choice.candidate
    number = next((at for at, part in enumerate(parts) if part.ranks is None), None)
    if number is None or results[number] == ComparisonResult.UNKNOWN:
        return ""
    if results[number] in BETTER:
        return group.references[choice.candidate]
    return parts[number].reference if BETTER.issuperset(results[:number]) else ""


def _is_better(state: _State, group: Group, name: str) -> bool:
    """Return whether the rounds of the choice show that a candidate is better than its references."""
    references = {group.reference, group.references[name]} - {name}
    evidence = [compare_choice(name, other, state.index, state.choosing) for other in references]
    return all(judge(each, state.choosing) in BETTER for each in evidence)
