"""The result of --verify: one sentence if there are no errors, else a table of ranks and the reasons."""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import count, named
from ompbind.inspection.verdict import RankVerification, ThreadIssue, Verdict, VerificationResult
from ompbind.planning.plan import Plan
from ompbind.report.text import WIDTH, Column, render_cpus, render_paragraph, render_table
from ompbind.severity import Severity

COUNTS = ("threads", "outside", "narrowed", "bound", "stacked")
"""The numbers of a verdict, as JSON names them."""

MOST = 10
"""Rows of the table, and reasons, that are shown; the others are counted."""

_NOT_SAMPLED = (
    "exited before ompbind could check its threads; at the start it was bound to its CPUs",
    "exited before ompbind could check their threads; at the start they were bound to their CPUs",
)
"""The text for a rank that exited before the first sample, and for several."""

_HIDDEN = (
    "could not be sampled: its threads are not visible in /proc",
    "could not be sampled: their threads are not visible in /proc",
)
"""The text for a rank that was running but not visible in /proc, and for several."""


def render_verified(
    verified: VerificationResult, plan: Plan, *, quiet: bool = False, width: int = WIDTH
) -> str:
    """Render the result for all its ranks, in lines of `width` characters.

    With `quiet` it is "" unless there is an error.
    """
    bad = [rank for rank in verified.ranks if rank.severity is Severity.ERROR]
    if bad:
        return "\n".join(_render_errors(bad, plan, width))
    if quiet:
        return ""
    notes = [rank for rank in verified.ranks if rank.severity is Severity.NOTE]
    sentence = _make_sentence(verified, memory_planned=any(placement.memory for placement in plan.placements))
    return "\n".join(
        (render_paragraph("ompbind", sentence, width), *_render_reasons(notes, width, label="note: "))
    )


def _make_sentence(verified: VerificationResult, *, memory_planned: bool) -> str:
    """Return the sentence for a result without errors; memory policies are in it if one is planned."""
    verdicts = [rank.verdict for rank in verified.ranks if rank.verdict]
    not_sampled = "; ".join(_explain_not_sampled(verified))
    if not verdicts:
        return f"not verified: {not_sampled}"
    bound = sum(verdict.bound for verdict in verdicts)
    places = f", {bound} of them bound to places" if bound else ""
    policies = sorted({rank.memory for rank in verified.ranks if rank.memory})
    memory = f", memory policy {' and '.join(policies)}" if memory_planned and policies else ""
    where = f"each on the CPUs of its rank{places}{memory}{_explain_when(verified)}"
    return f"verified: {_count_threads(verdicts)}, {where}{f'; {not_sampled}' if not_sampled else ''}"


def _explain_not_sampled(verified: VerificationResult) -> Iterator[str]:
    for texts, hidden in ((_NOT_SAMPLED, False), (_HIDDEN, True)):
        ranks = [rank.rank for rank in verified.ranks if not rank.verdict and rank.hidden == hidden]
        if ranks:
            yield f"{named('rank', ranks)} {texts[len(ranks) > 1]}"


def _explain_when(verified: VerificationResult) -> str:
    """Return when the last sample was: what threads do later is unknown."""
    if verified.stable:
        return f", {verified.seen_s:.0f} s after the start"
    if verified.complete:
        return f", but their number or masks still change after {verified.seen_s:.0f} s"
    return ", in the last check before the exit"


def _count_threads(verdicts: Sequence[Verdict]) -> str:
    names = sorted({name for verdict in verdicts for name in verdict.runtimes})
    runtimes = f" ({', '.join(names)})" if names else ""
    threads = count(sum(verdict.threads for verdict in verdicts), "thread")
    return f"{count(len(verdicts), 'rank')}, {threads}{runtimes}"


def _render_errors(bad: Sequence[RankVerification], plan: Plan, width: int) -> Iterator[str]:
    ranks = named("rank", (rank.rank for rank in bad))
    yield render_paragraph("ompbind: warning", f"the threads of {ranks} do not run as planned", width)
    yield render_table(_make_columns(bad[:MOST], plan), width)
    yield from _render_reasons(bad, width)


def _make_columns(ranks: Sequence[RankVerification], plan: Plan) -> list[Column]:
    cpus = {placement.rank: render_cpus(placement.cpuset) for placement in plan.placements}
    numbers = [rank.rank for rank in ranks if rank.verdict]
    verdicts = [rank.verdict for rank in ranks if rank.verdict]
    return [
        Column(title="rank", cells=list(map(str, numbers)), right=True),
        Column(title="CPUs", cells=[cpus.get(rank, "") for rank in numbers], grows=True),
        *(
            Column(title=title, cells=[str(getattr(verdict, title)) for verdict in verdicts], right=True)
            for title in ("threads", "outside", "narrowed", "stacked")
        ),
        Column(
            title="runtimes", cells=[", ".join(verdict.runtimes) or "-" for verdict in verdicts], grows=True
        ),
    ]


def _render_reasons(ranks: Sequence[RankVerification], width: int, label: str = "") -> Iterator[str]:
    """Yield each text of an issue once, with all ranks that have it."""
    ranks_by_text: dict[str, list[int]] = {}
    for rank in ranks:
        for issue in rank.verdict.issues if rank.verdict else ():
            if issue.severity is not Severity.OK:
                ranks_by_text.setdefault(issue.text, []).append(rank.rank)
    for text, numbers in list(ranks_by_text.items())[:MOST]:
        yield render_paragraph("ompbind", f"{label}{named('rank', numbers)}: {text}", width)
    if len(ranks_by_text) > MOST:
        others = list(ranks_by_text.values())[MOST:]
        rest = named("rank", {number for numbers in others for number in numbers})
        yield render_paragraph("ompbind", f"{label}{rest}: {count(len(others), 'other reason')}", width)


def verified_record(verified: VerificationResult | None) -> dict[str, object] | None:
    """Return the JSON value of a result in the report of a run, None without --verify."""
    if verified is None:
        return None
    return {
        "level": verified.severity.json_level,
        "settled": verified.complete,
        "calm": verified.stable,
        "seen_s": round(verified.seen_s, 3),
        "strict": verified.strict,
        "ranks": [_make_rank_record(rank) for rank in verified.ranks],
    }


def _make_rank_record(rank: RankVerification) -> dict[str, object]:
    verdict = rank.verdict
    return {
        "rank": rank.rank,
        "seen_s": None if rank.seen_s is None else round(rank.seen_s, 3),
        "level": None if verdict is None else verdict.severity.json_level,
        **{name: None if verdict is None else getattr(verdict, name) for name in ("processes", *COUNTS)},
        "runtimes": list(verdict.runtimes) if verdict else [],
        "memory": rank.memory,
        "findings": [issue_record(issue) for issue in verdict.issues] if verdict else [],
        "text": verdict.text if verdict else (_HIDDEN if rank.hidden else _NOT_SAMPLED)[0],
    }


def issue_record(issue: ThreadIssue) -> dict[str, object]:
    """Return the JSON value of an issue."""
    return {
        "code": issue.code,
        "level": issue.severity.json_level,
        "threads": issue.threads,
        "text": issue.text,
    }
