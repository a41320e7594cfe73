"""Which candidate of a group is chosen, and which candidates are dropped early: pure functions.

The rounds of the choice run all candidates that are not dropped. Looks take place after planned rounds (see
`comparing`).
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from ompbind.bench.comparing import (
    NOT_BETTER,
    Criterion,
    Evidence,
    Group,
    RunIndex,
    find_last_round,
    judge,
    make_evidence,
    make_looks,
)
from ompbind.bench.records import ComparisonResult, Phase, Rules
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
        and judge(compare_choice(name, own, index, criterion), criterion) in NOT_BETTER
    }
    waiting = {group.references[name] for name in remaining if name not in worse | references}
    return tuple(name for name in remaining if name not in worse | waiting)


def find_simplest_leader(group: Group, index: RunIndex, criterion: Criterion, names: Sequence[str]) -> str:
    """Return the simplest candidate that is as good as the best of `names`, by the median; "" without any."""
    leaders = _find_leaders(group.reference, names, index, criterion)
    return leaders[0] if leaders else ""


def find_open(name: str, others: Iterable[str], index: RunIndex, criterion: Criterion) -> list[str]:
    """Return the other candidates for which the rounds do not show whether `name` is better."""
    results = {other: judge(compare_choice(name, other, index, criterion), criterion) for other in others}
    return [other for other, result in results.items() if result == ComparisonResult.UNKNOWN]


def _is_clear(best: str, others: Iterable[str], index: RunIndex, criterion: Criterion) -> bool:
    """Return whether no other contender can be better by what matters."""
    for other in others:
        evidence = compare_choice(best, other, index, criterion)
        low = evidence.interval[0] if evidence and evidence.interval else -math.inf
        if other != best and low <= -criterion.matters:
            return False
    return True


def compare_choice(name: str, other: str, index: RunIndex, criterion: Criterion) -> Evidence | None:
    """Return what the rounds of the choice say about two candidates; above 0 `name` is better."""
    return make_evidence(index.compare(Phase.CHOICE, name, other).values(), criterion)


def _find_leaders(reference: str, names: Iterable[str], index: RunIndex, criterion: Criterion) -> list[str]:
    """Return the candidates that are as good as the best by the median: the simplest first, the best last."""
    compared = {name: compare_choice(name, reference, index, criterion) for name in names}
    medians = {name: evidence.median for name, evidence in compared.items() if evidence}
    if not medians:
        return []
    best = max(medians, key=medians.__getitem__)
    lost = {name: compare_choice(best, name, index, criterion) for name in medians}
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
