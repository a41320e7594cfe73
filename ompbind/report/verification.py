"""The result of --verify: a table of ranks and reasons for errors during a run, else one sentence."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ompbind.cpuset import count, named, union
from ompbind.inspection.verdict import (
    OthersLoad,
    RankVerification,
    State,
    ThreadIssue,
    Unseen,
    Verdict,
    VerificationResult,
)
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Plan
from ompbind.report.text import WIDTH, Column, render_cpus, render_paragraph, render_table
from ompbind.text import Severity, worst

COUNTS = ("threads", "outside", "narrowed", "bound", "stacked")
"""The numbers of a verdict, as JSON names them."""

MOST = 10  # rows of the table, and reasons, that are shown; the others are counted

_AT_START = "exited before the first sample, on the planned CPUs at its start"
"""The text for a rank that was not sampled."""


def render_verified(
    verified: VerificationResult, plan: Plan, *, quiet: bool = False, width: int = WIDTH
) -> str:
    """Render the result for all its ranks, in lines of `width` characters.

    With `quiet` it is "" if the state is "ok".
    """
    if quiet and verified.state is State.OK:
        return ""
    bad = [rank for rank in verified.ranks if rank.errors]
    if bad and not verified.ended:
        ranks = named("rank", (rank.rank for rank in bad))
        head = render_paragraph("ompbind: warning", f"the threads of {ranks} do not run as planned", width)
        table = render_table(_make_columns(bad[:MOST], plan), width)
        return "\n".join((head, table, *_render_reasons(bad, width)))
    # The notes of a long run were reported when they were found.
    notes = [] if quiet or (verified.ended and verified.complete) else [*verified.ranks]
    notes = [rank for rank in notes if rank.state is not State.ERROR]
    for rank, issue in verified.unconfirmed:
        if issue.severity is not Severity.ERROR and not quiet:
            notes.append(RankVerification(rank=rank, verdict=Verdict(issues=(issue,), summary="")))
    sentence = render_paragraph("ompbind", _make_sentence(verified, plan), width)
    reasons = [*_render_reasons(notes, width)]
    return "\n".join([*reasons, sentence] if verified.ended else [sentence, *reasons])


def _make_sentence(verified: VerificationResult, plan: Plan) -> str:
    if verified.state is State.ERROR:
        texts = [_describe_errors(verified), verified.reason]
    else:
        hidden = [f"not seen: {verified.reason}"] if verified.state is State.NOT_SEEN else []
        texts = [*hidden, *_describe_seen(verified, plan)]
    missing = verified.find(Unseen.NOT_STARTED)
    if missing and not verified.failure:
        texts.append(f"{named('rank', missing)} {'were' if len(missing) > 1 else 'was'} not started")
    if verified.state is not State.OK:
        texts.append(verified.failed)
    return "; ".join(filter(None, texts))


def _describe_seen(verified: VerificationResult, plan: Plan) -> list[str]:
    """Return texts on ranks that were seen; memory policies are in them if one is planned."""
    seen = [rank for rank in verified.ranks if not rank.unseen]
    verdicts = [rank.verdict for rank in seen if rank.verdict]
    unsampled = [rank.rank for rank in seen if not rank.verdict]
    if not verdicts:
        who = f"{named('rank', unsampled)} {'were' if len(unsampled) > 1 else 'was'}"
        where = "on the planned CPUs, and exited before the first sample"
        return [f"verified at the start of each rank: {who} {where}"] if unsampled else []
    policies = sorted({rank.memory for rank in seen if rank.memory})
    planned = any(placement.memory for placement in plan.placements)
    memory = f", memory policy {' and '.join(policies)}" if planned and policies else ""
    where = f"each on the CPUs of its rank{_count_bound(verdicts, plan)}{memory}"
    errors = [issue for _, issue in verified.unconfirmed if issue.severity is Severity.ERROR]
    if errors:
        codes: Counter[str] = Counter()
        for issue in errors:
            codes[issue.code] += issue.threads
        found = (f"{count(n, 'thread')} {'were' if n > 1 else 'was'} {code}" for code, n in codes.items())
        where = f"{', '.join(found)} in the last sample, not confirmed{memory}"
    if verified.ended:
        head, when = f"verified for {_render_duration(verified)}", ""
        threads = f"at most {count(verified.most_threads, 'thread')}"
    else:
        head, threads = "verified", count(sum(verdict.threads for verdict in verdicts), "thread")
        when = f", {verified.seen_s:.0f} s after the start"
        if verified.complete and not verified.stable:
            when = f", but their number or masks still change after {verified.seen_s:.0f} s"
    runtimes = ", ".join(sorted({name for verdict in verdicts for name in verdict.runtimes}))
    counts = f"{count(len(verdicts), 'rank')}, {threads}{f' ({runtimes})' if runtimes else ''}"
    at_start = f"{named('rank', unsampled)} {_AT_START}" if unsampled else ""
    others = [_describe_processes(verified, plan), _describe_others(verified)]
    return [f"{head}: {counts}, {where}{when}", at_start, *others]


def _describe_processes(verified: VerificationResult, plan: Plan) -> str:
    """Return which ranks had another number of busy processes than --processes-per-rank says, "" if none.

    Nothing is said of ranks that only waited.
    """
    found: dict[int, dict[int, list[int]]] = {}  # ranks by the expected number, then by the number
    for rank in verified.ranks if verified.ended else ():
        expected = plan.rank_requests[rank.rank].processes_per_rank
        if rank.verdict and expected > 1 and rank.busy_processes not in (0, expected):
            found.setdefault(expected, {}).setdefault(rank.busy_processes, []).append(rank.rank)
    texts = []
    for expected, ranks in sorted(found.items()):
        had = [
            f"{named('rank', own)} had at most {count(n, 'busy process')}" for n, own in sorted(ranks.items())
        ]
        texts.append(f"{', '.join(had)} at a time, {expected} were expected")
    return "; ".join(texts)


def _describe_others(verified: VerificationResult) -> str:
    """Return what other processes used of the CPUs of ranks during the whole run, "" if that is little."""
    disturbed = [rank for rank in verified.ranks if rank.others.is_much]
    if not (verified.ended and disturbed):
        return ""
    loads = {rank.others.cpus: rank.others for rank in disturbed}.values()  # some ranks share CPUs
    used = sum(load.used_s / load.span_s for load in loads)
    load = OthersLoad(cpus=union(load.cpus for load in loads), span_s=1.0, used_s=used)
    return f"{load.text} while {named('rank', (rank.rank for rank in disturbed))} ran"


def _count_bound(verdicts: Sequence[Verdict], plan: Plan) -> str:
    """Return how many threads are bound to places; a runtime without any may not have been used yet."""
    bound = sum(verdict.bound for verdict in verdicts)
    if bound:
        is_rank = all(part.request.bind is Bind.RANK for part in plan.parts)
        what = "the compute CPUs" if is_rank else "places"
        return f", {bound} of them bound to {what}"
    has_places = any(len(placement.places) > 1 for placement in plan.placements)
    has_runtime = any(verdict.runtimes for verdict in verdicts)
    return ", none of them bound to a place" if has_places and has_runtime else ""


def _render_duration(verified: VerificationResult) -> str:
    """Return for how long a run was sampled, and how often: "3.1 of 12.4 s, 5 samples"."""
    unit_s, unit = (1, "s") if verified.run_s < 120 else (60, "min") if verified.run_s < 7200 else (3600, "h")
    digits = 0 if unit == "min" else 1
    text = " of ".join(f"{seconds / unit_s:.{digits}f}" for seconds in (verified.seen_s, verified.run_s))
    return f"{text} {unit}, {count(verified.samples, 'sample')}"


def _describe_errors(verified: VerificationResult) -> str:
    found: dict[str, list[tuple[int, str]]] = {}
    for rank in verified.ranks:
        for issue in rank.errors:
            found.setdefault("in the last sample", []).append((rank.rank, issue.code))
        for attempt, issue in rank.past:
            when = "before the last sample" if attempt == rank.attempt else f"in attempt {attempt}"
            found.setdefault(when, []).append((rank.rank, issue.code))
    texts = []
    for when, pairs in sorted(found.items(), key=lambda pair: pair[0] != "in the last sample"):
        ranks, codes = zip(*pairs, strict=True)
        texts.append(f"{named('rank', {*ranks})} had errors ({', '.join(dict.fromkeys(codes))}) {when}")
    return f"not as planned, seen for {_render_duration(verified)}: {'; '.join(texts)}"


def _make_columns(ranks: Sequence[RankVerification], plan: Plan) -> list[Column]:
    cpus = {placement.rank: render_cpus(placement.cpuset) for placement in plan.placements}
    numbers = [rank.rank for rank in ranks if rank.verdict]
    verdicts = [rank.verdict for rank in ranks if rank.verdict]
    groups = [Column(title="group", cells=[plan.labels[rank] for rank in numbers])] if plan.groups else []
    runtimes = [", ".join(verdict.runtimes) or "-" for verdict in verdicts]
    return [
        Column(title="rank", cells=list(map(str, numbers)), right=True),
        *groups,
        Column(title="CPUs", cells=[cpus.get(rank, "") for rank in numbers], grows=True),
        *(
            Column(title=title, cells=[str(getattr(verdict, title)) for verdict in verdicts], right=True)
            for title in ("threads", "outside", "narrowed", "stacked")
        ),
        Column(title="runtimes", cells=runtimes, grows=True),
    ]


def _render_reasons(ranks: Sequence[RankVerification], width: int) -> Iterator[str]:
    """Yield each text of an issue once, with its severity if it is no error, and all ranks that have it."""
    ranks_by_text: dict[tuple[str, str], list[int]] = {}
    for rank in ranks:
        for issue in rank.verdict.issues if rank.verdict else ():
            label = "" if issue.severity is Severity.ERROR else f"{issue.severity}: "
            ranks_by_text.setdefault((label, issue.text), []).append(rank.rank)
    for (label, text), numbers in list(ranks_by_text.items())[:MOST]:
        yield render_paragraph("ompbind", f"{label}{named('rank', numbers)}: {text}", width)
    if len(ranks_by_text) > MOST:
        others = list(ranks_by_text.values())[MOST:]
        rest = named("rank", {number for numbers in others for number in numbers})
        yield render_paragraph("ompbind", f"{rest}: {count(len(others), 'other reason')}", width)


def verified_record(verified: VerificationResult | None) -> dict[str, object] | None:
    """Return the JSON value of a result in the report of a run, None without --verify."""
    if verified is None:
        return None
    severities = [issue.severity for rank in verified.ranks for issue in _list_issues(rank)]
    is_sampled = any(rank.verdict or rank.past for rank in verified.ranks)
    return {
        "state": verified.state,
        "reason": verified.reason or None,
        "level": worst(severities).json_level if is_sampled else None,
        "settled": verified.complete,
        "calm": verified.stable,
        "seen_s": round(verified.seen_s, 3),
        "samples": verified.samples,
        "threads": verified.most_threads,
        "strict": verified.strict,
        "unconfirmed": [{"rank": rank, **issue_record(issue)} for rank, issue in verified.unconfirmed],
        "ranks": [_make_rank_record(rank) for rank in verified.ranks],
    }


def _list_issues(rank: RankVerification) -> list[ThreadIssue]:
    """Return all issues of a rank, worst first: of its last sample, and errors before it."""
    issues = rank.verdict.issues if rank.verdict else ()
    return [*rank.errors, *(issue for _, issue in rank.past), *issues[len(rank.errors) :]]


def _make_rank_record(rank: RankVerification) -> dict[str, object]:
    verdict, issues = rank.verdict, _list_issues(rank)
    text = verdict.summary if verdict else rank.unseen or _AT_START
    is_sampled = verdict or issues
    return {
        "rank": rank.rank,
        "state": rank.state,
        "reason": rank.unseen,
        "seen_s": None if rank.seen_s is None else round(rank.seen_s, 3),
        "level": worst(issue.severity for issue in issues).json_level if is_sampled else None,
        **{name: None if verdict is None else getattr(verdict, name) for name in ("processes", *COUNTS)},
        "runtimes": list(verdict.runtimes) if verdict else [],
        "memory": rank.memory,
        "others_share": round(rank.others.share, 3) if rank.others.span_s else None,
        "findings": [issue_record(issue) for issue in issues],
        "text": "; ".join(issue.text for issue in issues) or text,
    }


def issue_record(issue: ThreadIssue) -> dict[str, object]:
    """Return the JSON value of an issue."""
    return {
        "code": issue.code,
        "level": issue.severity.json_level,
        "threads": issue.threads,
        "text": issue.text,
    }
