"""What was seen of the threads of a run's ranks: one line when all is well, else a table and the reasons."""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import count, named
from ompbind.inspection.verdict import RankVerified, ThreadIssue, Verdict, Verified
from ompbind.planning.plan import Plan
from ompbind.report.text import Column, render_cpus, render_paragraph, render_table
from ompbind.severity import Severity

COUNTS = ("threads", "outside", "narrowed", "bound", "stacked")  # the numbers of a verdict, as JSON has them
MOST = 10  # rows of the table, and reasons, that are shown; the rest are counted

_UNSEEN = (
    "ended before it could be looked at; it was confined, and that read back, before it started",
    "ended before they could be looked at; they were confined, and that read back, before they started",
)
"""What is said of a rank that nobody has seen, and of several."""

_HIDDEN = (
    "could not be looked at: /proc does not show its threads here",
    "could not be looked at: /proc does not show their threads here",
)
"""What is said of a rank that ran all the time, and of which nobody could see anything, and of several."""


def render_verified(verified: Verified, plan: Plan, *, quiet: bool = False) -> str:
    """Render what was seen of all ranks, or of those that were told of at once.

    With `quiet` that is "" unless there is a problem.
    """
    bad = [one for one in verified.ranks if one.severity is Severity.ERROR]
    if bad:
        return "\n".join(_problems(verified, bad, plan))
    if quiet:
        return ""
    notes = [one for one in verified.ranks if one.severity is Severity.NOTE]
    line = _line(verified, planned=any(one.memory for one in plan.placements))
    return "\n".join((render_paragraph("ompbind", line), *_reasons(notes, "note: ")))


def _line(verified: Verified, *, planned: bool) -> str:
    """Say in one sentence that all is well; `planned` tells that memory is to be had by a policy."""
    seen = [one.verdict for one in verified.ranks if one.verdict]
    unseen = "; ".join(_unseen(verified))
    if not seen:
        return f"not verified: {unseen}"
    bound = sum(one.bound for one in seen)
    where = f"each on the CPUs of its rank{f', {bound} of them bound to places' if bound else ''}"
    policies = sorted({one.memory for one in verified.ranks if one.memory})
    memory = f", memory by {' and '.join(policies)}" if planned and policies else ""
    return f"verified: {_counts(seen)}, {where}{memory}{_when(verified)}{f'; {unseen}' if unseen else ''}"


def _unseen(verified: Verified) -> Iterator[str]:
    for words, hidden in ((_UNSEEN, False), (_HIDDEN, True)):
        ranks = [one.rank for one in verified.ranks if not one.verdict and one.hidden == hidden]
        if ranks:
            yield f"{named('rank', ranks)} {words[len(ranks) > 1]}"


def _when(verified: Verified) -> str:
    """Say when that was: what a program does later is not seen."""
    if verified.stable:
        return f" {verified.seen_s:.0f} s after the start"
    if verified.settled:
        return f"; after {verified.seen_s:.0f} s threads still come and go"
    return " when last seen"


def _counts(seen: Sequence[Verdict]) -> str:
    runtimes = sorted({name for one in seen for name in one.runtimes})
    told = f" ({', '.join(runtimes)})" if runtimes else ""
    return f"{count(len(seen), 'rank')}, {count(sum(one.threads for one in seen), 'thread')}{told}"


def _problems(verified: Verified, bad: Sequence[RankVerified], plan: Plan) -> Iterator[str]:
    ranks = named("rank", (one.rank for one in bad))
    yield render_paragraph("ompbind: warning", f"the threads of {ranks} do not run as planned")
    yield render_table(_columns(bad[:MOST], plan))
    yield from _reasons(bad)


def _columns(ranks: Sequence[RankVerified], plan: Plan) -> list[Column]:
    cpus = {one.rank: render_cpus(one.cpuset) for one in plan.placements}
    numbers = [one.rank for one in ranks if one.verdict]
    seen = [one.verdict for one in ranks if one.verdict]
    return [
        Column(title="rank", cells=list(map(str, numbers)), right=True),
        Column(title="CPUs", cells=[cpus.get(rank, "") for rank in numbers], grows=True),
        *(
            Column(title=title, cells=[str(getattr(one, title)) for one in seen], right=True)
            for title in ("threads", "outside", "narrowed", "stacked")
        ),
        Column(title="runtimes", cells=[", ".join(one.runtimes) or "-" for one in seen], grows=True),
    ]


def _reasons(ranks: Sequence[RankVerified], head: str = "") -> Iterator[str]:
    """Yield what was found, ranks of which the same is to be said together."""
    found: dict[str, list[int]] = {}
    for one in ranks:
        for issue in one.verdict.issues if one.verdict else ():
            if issue.severity is not Severity.OK:
                found.setdefault(issue.text, []).append(one.rank)
    for text, numbers in list(found.items())[:MOST]:
        yield render_paragraph("ompbind", f"{head}{named('rank', numbers)}: {text}")
    if len(found) > MOST:
        rest = named("rank", {number for numbers in list(found.values())[MOST:] for number in numbers})
        yield render_paragraph("ompbind", f"{head}{rest}: {count(len(found) - MOST, 'other reason')}")


def verified_record(verified: Verified | None) -> dict[str, object] | None:
    """Return what was seen as it stands in the report of a run, None where nobody asked for it."""
    if verified is None:
        return None
    return {
        "level": verified.severity.json_level,
        "settled": verified.settled,
        "calm": verified.stable,
        "seen_s": round(verified.seen_s, 3),
        "strict": verified.strict,
        "ranks": [_rank_record(one) for one in verified.ranks],
    }


def _rank_record(one: RankVerified) -> dict[str, object]:
    verdict = one.verdict
    return {
        "rank": one.rank,
        "seen_s": None if one.seen_s is None else round(one.seen_s, 3),
        "level": None if verdict is None else verdict.severity.json_level,
        **{name: None if verdict is None else getattr(verdict, name) for name in ("processes", *COUNTS)},
        "runtimes": list(verdict.runtimes) if verdict else [],
        "memory": one.memory,
        "findings": [issue_record(one) for one in verdict.issues] if verdict else [],
        "text": verdict.text if verdict else (_HIDDEN if one.hidden else _UNSEEN)[0],
    }


def issue_record(issue: ThreadIssue) -> dict[str, object]:
    """Return the JSON value of a finding on threads."""
    return {
        "code": issue.code,
        "level": issue.severity.json_level,
        "threads": issue.threads,
        "text": issue.text,
    }
