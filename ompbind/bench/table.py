"""The results of a session for people: a table of each group, and the command to use.

The table shows the candidates of a group, best first. Below it is what the reader should know: which
candidates had the same plan, could not run or ran no longer, and remarks on the runs. The recommended command
is last, on a line of its own that is never wrapped, so that it can be pasted.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import floor, log10
from statistics import median
from typing import TypeAlias

from ompbind.bench.candidates import drop_ranks
from ompbind.bench.records import (
    Candidate,
    Comparison,
    ComparisonResult,
    Conclusion,
    GroupConclusion,
    Kind,
    Metric,
    Run,
    Session,
)
from ompbind.cpuset import count
from ompbind.report.run_summary import render_short
from ompbind.report.text import (
    PIPE,
    Column,
    Screen,
    clip,
    dim,
    make_visible,
    render_age,
    render_bytes,
    render_paragraph,
    render_rows,
)
from ompbind.text import clean_line


def list_compared_runs(session: Session) -> Mapping[str, Sequence[Run]]:
    """Return the runs that count, by candidate: valid ones, without warm-ups."""
    found: dict[str, list[Run]] = {candidate.name: [] for candidate in session.candidates}
    for run in session.runs:
        if run.counts:
            found.setdefault(run.candidate, []).append(run)
    return found


def shorten_name(name: str, group: GroupConclusion) -> str:
    """Return the name of a candidate for texts about its group: without the number of ranks."""
    return clean_line(drop_ranks(name, group.ranks))


def name_ranks(group: GroupConclusion) -> str:
    """Return the number of ranks of a group, if the names of its candidates have it; else ""."""
    if group.ranks is None:
        return "numbers of ranks"
    names = [comparison.candidate for comparison in group.comparisons]
    return count(group.ranks, "rank") if any(drop_ranks(name, group.ranks) != name for name in names) else ""


def make_words(reason: str) -> str:
    """Return the lines of a reason, such as the last words of a command, as a terminal shows them, joined."""
    return "; ".join(filter(None, (line.strip() for line in map(make_visible, reason.splitlines()))))


Choice: TypeAlias = tuple[Candidate, GroupConclusion, Comparison]
"""A candidate to recommend within a group, and its comparison there."""


def list_choices(session: Session, conclusion: Conclusion) -> Iterator[Choice]:
    """Yield the choice of each group that has one; each candidate once, with its number of ranks."""
    candidates = {candidate.name: candidate for candidate in session.candidates}
    for group in conclusion.groups:
        for comparison in group.comparisons:
            if comparison.candidate == group.choice and group.choice in candidates:
                yield candidates.pop(group.choice), group, comparison


def make_command(candidate: Candidate, command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that start the command as a candidate does: with `ompbind run`, or unchanged."""
    if candidate.kind is Kind.UNBOUND:
        return tuple(command)
    return ("ompbind", "run", *candidate.options, "--", *(candidate.words or command))


def join_command(words: Iterable[str], *, ascii_only: bool = False) -> str:
    """Return words as a line for a shell, without control characters that a terminal would act on."""
    return " ".join(_quote(word, ascii_only=ascii_only) for word in words)


def _quote(word: str, *, ascii_only: bool) -> str:
    """Quote a word for a shell; what a terminal cannot show is escaped as bash and zsh read it."""
    if word.isprintable() and (word.isascii() or not ascii_only):
        return shlex.quote(word)
    text = word.encode("utf-8", "surrogateescape").decode("latin-1")  # a character for each byte
    escaped = text.encode("unicode_escape").decode().replace("'", "\\'")
    return f"$'{escaped}'"


_WIDEST = 5  # decimals of a number below 10, at most; larger numbers have fewer


def make_scale(metric: Metric, values: Iterable[float | None]) -> Callable[[float | None], str]:
    """Return what writes values of a metric with one unit, the smallest with four digits; "-" for None."""
    sizes = [abs(value) for value in values if value]
    least, most = min(sizes, default=1.0), max(sizes, default=1.0)
    factor, unit = 1.0, ""
    if not metric.pattern:
        factor, unit = (1e3, "ms") if most < 1 else (1.0, "s")
    needed = 3 - floor(log10(least * factor))
    limit = _WIDEST - max(floor(log10(most * factor)), 0)
    decimals = max(0, min(needed, limit, 3 if unit else _WIDEST))

    def render(value: float | None) -> str:
        if value is None:
            return "-"
        scaled = value * factor
        number = f"{scaled:.3e}" if abs(scaled) >= 1e7 else f"{scaled:.{decimals}f}"
        return f"{number} {unit}".rstrip()

    return render


def render_ratio(ratio: float | None, *, is_fine: bool = False) -> str:
    """Return a ratio with three digits; with three decimals near 1, or on request; "-" for None."""
    if ratio is None:
        return "-"
    if not 0.01 <= ratio < 1000:
        return f"{ratio:.1e}"
    decimals = 3 if is_fine or 0.95 <= ratio < 1.05 else 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{decimals}f}"


def render_interval(interval: tuple[float, float] | None) -> str:
    """Return the interval of a ratio, "" for None; if it is narrow, both ends have equal decimals."""
    if interval is None:
        return ""
    low, high = interval
    is_fine = high < 1.1 * low and any(0.95 <= end < 1.05 for end in interval)
    return " to ".join(render_ratio(end, is_fine=is_fine) for end in interval)


def render_more_rounds(rounds: int) -> str:
    """Return about how many more rounds are needed; the estimate of a large number is rough."""
    return f"about {count(rounds if rounds < 100 else round(rounds, -1), 'more round')}"


def render_run_time(run_s: float) -> str:
    """Return the time of a run as text."""
    return render_age(run_s) if run_s >= 10 else f"{run_s:.2g} s"


def render_result(comparison: Comparison) -> str:
    """Return the result of a comparison, and about how many more rounds would decide it."""
    needed = f"; {render_more_rounds(comparison.more_rounds)}" if comparison.more_rounds else ""
    return f"{comparison.result}{needed}"


def name_metric(metric: Metric) -> str:
    """Return the title of a metric for a column, at most 16 characters: "time" for the wall time."""
    return clip(clean_line(metric.name), 16) if metric.pattern else "time"


def name_change(metric: Metric) -> tuple[str, str]:
    """Return the words for ratios above 1 and below 1."""
    return ("better", "worse") if metric.pattern else ("faster", "slower")


_NARROW = 72  # characters of a line below which the table has no column of rounds
_WIDE = 120  # characters of a line from which on the table has columns on what the runs used


def render_bench(
    session: Session, conclusion: Conclusion, screen: Screen = PIPE, *, verbose: bool = False
) -> str:
    """Render what a session found; with `verbose` narrow screens show what the runs used too."""
    parts = ["\n".join(_make_heading(session, screen))]
    for group in conclusion.groups:
        parts += _render_group(session, group, screen, verbose=verbose)
    parts += [
        "\n".join(_make_notes(session, conclusion, screen)),
        *render_choices(session, conclusion, screen),
    ]
    text = "\n\n".join(filter(None, parts))
    return text if screen.is_unicode else text.encode("ascii", "replace").decode()


def _make_heading(session: Session, screen: Screen) -> Iterator[str]:
    hardware, width = session.hardware, screen.text_width
    words = ("ompbind", "bench", *session.options, "--", *session.command)
    line = join_command(words if "--name" in session.options else session.command)  # with groups, all of it
    yield render_paragraph("command", clean_line(line), width)
    quota = "" if hardware.quota is None else f"quota of {count(hardware.quota, 'CPU')}"
    allowed = f"CPUs {hardware.allowed}" if hardware.allowed else ""
    machine = filter(None, (hardware.hostname, hardware.processor, allowed, quota))
    yield render_paragraph("machine", clean_line(", ".join(machine)) or "unknown", width)
    compared = sum(run.round > 0 for run in session.runs)
    runs = f"{count(compared, 'run')} and {count(len(session.runs) - compared, 'warm-up')}"
    duration = ""
    if session.runs:
        end = max(run.started + max(run.wall_s, default=0.0) for run in session.runs)
        duration = f" in {render_age(end - min(run.started for run in session.runs))}"
    reason = "recommendation decided" if session.ended == "decided" else clean_line(session.ended)
    yield render_paragraph("session", f"{runs}{duration}: {reason or 'not finished'}", width)


def _render_group(
    session: Session, group: GroupConclusion, screen: Screen, *, verbose: bool
) -> Iterator[str]:
    """Yield the table of a group, and a second one of what its runs used if one is too wide."""
    columns, usage = list(_make_columns(session, group, screen)), list(_make_usage_columns(session, group))
    width = screen.text_width
    heading = name_ranks(group)
    yield f"\033[1m{heading}\033[22m" if heading and screen.styled else heading
    together = sum(max(map(len, (column.title, *column.cells))) + 2 for column in (*columns, *usage)) - 2
    if together <= width:
        yield _render_styled([*columns, *usage], group, screen)
    else:
        yield _render_styled(columns, group, screen)
        if verbose or width >= _WIDE:
            yield _render_styled([columns[0], *usage], group, screen)
    if group.ranks is not None:  # else the notes are below other tables
        yield "\n".join(_make_group_notes(session, group, width))


def list_columns(session: Session, group: GroupConclusion) -> list[Column]:
    """Return all columns of the table of a group."""
    return [*_make_columns(session, group, PIPE), *_make_usage_columns(session, group)]


def _render_styled(columns: Sequence[Column], group: GroupConclusion, screen: Screen) -> str:
    title, *rows = render_rows(columns, screen.text_width)
    if screen.styled:
        for at, comparison in enumerate(group.comparisons):
            if comparison.candidate == group.choice:
                rows[at] = "\n".join(f"\033[1m{line}\033[22m" for line in rows[at].split("\n"))
            elif comparison.result in (ComparisonResult.DROPPED, ComparisonResult.DISQUALIFIED):
                rows[at] = dim(rows[at])
    return "\n".join([title, *rows])


def _make_columns(session: Session, group: GroupConclusion, screen: Screen) -> Iterator[Column]:
    comparisons, metric = group.comparisons, session.metrics[0]
    medians = [comparison.median for comparison in comparisons]
    ratios, rounds = [], []
    for comparison in comparisons:
        is_reference = comparison.result is ComparisonResult.REFERENCE
        ratios.append("1" if is_reference else render_ratio(comparison.ratio))
        rounds.append("" if is_reference else str(comparison.rounds))
    names = [shorten_name(comparison.candidate, group) for comparison in comparisons]
    yield Column(title="candidate", cells=names, grows=True)
    is_narrow = screen.text_width < _NARROW
    yield Column(title=name_metric(metric), cells=list(map(make_scale(metric, medians), medians)), right=True)
    yield Column(title="ratio", cells=ratios, right=True)
    yield Column(title="interval", cells=[render_interval(comparison.interval) for comparison in comparisons])
    if not is_narrow:
        yield Column(title="rounds", cells=rounds, right=True)
    yield Column(title="result", cells=list(map(render_result, comparisons)), grows=True)


def _make_usage_columns(session: Session, group: GroupConclusion) -> Iterator[Column]:
    """Yield columns with medians over the runs of each candidate: other metrics, and what the runs used."""
    found = list_compared_runs(session)
    rows = [found.get(comparison.candidate, ()) for comparison in group.comparisons]

    def find_medians(values: Iterable[Iterable[float | None]]) -> list[float | None]:
        known = ([value for value in own if value is not None] for own in values)
        return [median(own) if own else None for own in known]

    columns: list[tuple[str, list[float | None], Callable[[float], str]]] = []
    for at, metric in enumerate(session.metrics[1:], 1):
        medians = find_medians((run.values[at] for run in runs if len(run.values) > at) for runs in rows)
        columns.append((name_metric(metric), medians, make_scale(metric, medians)))
    times = find_medians((run.user_s + run.system_s for run in runs) for runs in rows)
    sizes = find_medians((run.max_rss_bytes for run in runs) for runs in rows)
    switches = find_medians((run.forced_switches for run in runs) for runs in rows)
    columns += [
        ("CPU s", times, "{:.2f}".format),
        ("memory", sizes, lambda size: render_bytes(round(size))),
        ("forced", switches, render_short),
    ]
    for title, medians, render in columns:
        if any(value is not None for value in medians):  # else it is not known on this machine
            cells = ["-" if value is None else render(value) for value in medians]
            yield Column(title=title, cells=cells, right=True)


def _make_notes(session: Session, conclusion: Conclusion, screen: Screen) -> Iterator[str]:
    width = screen.text_width
    references = {shorten_name(group.reference, group) for group in conclusion.groups if group.reference}
    if references:
        better, _ = name_change(session.metrics[0])
        reference = references.pop() if len(references) == 1 else "the reference of the same table"
        text = f"compared with {reference} in the same rounds; above 1 is {better}"
        if session.metrics[0].pattern and not session.metrics[0].higher:
            text += ", which is a lower number (--higher: a higher one)"
        yield render_paragraph("ratio", text, width)
    if any(comparison.interval for group in conclusion.groups for comparison in group.comparisons):
        yield render_paragraph("interval", "contains the true ratio, with 95 % confidence", width)
    for refusal in session.refusals:
        text = clean_line(f"{refusal.name}: {make_words(refusal.reason)}")
        yield render_paragraph("cannot run", text, width)
    for remark in conclusion.remarks:
        where = f"{remark.candidate}: " if remark.candidate else ""
        yield render_paragraph("remark", clean_line(f"{where}{remark.text}"), width)


def _make_group_notes(session: Session, group: GroupConclusion, width: int) -> Iterator[str]:
    same = {candidate.name: candidate.same for candidate in session.candidates}
    for comparison in group.comparisons:
        if others := same.get(comparison.candidate):
            name, *equal = (shorten_name(each, group) for each in (comparison.candidate, *others))
            yield render_paragraph("same plan", f"{name}: also {' and '.join(equal)}", width)
    reasons: dict[tuple[str, str], list[str]] = {}  # of the candidates with this result and reason
    for each in group.comparisons:
        if each.reason:
            reasons.setdefault((each.result, each.reason), []).append(shorten_name(each.candidate, group))
    for (result, reason), names in reasons.items():
        who = "all candidates" if 1 < len(names) == len(group.comparisons) else "; ".join(names)
        text = shorten_name(make_words(reason), group)  # why it was dropped begins with a name
        yield render_paragraph(result, clean_line(f"{who}: {text}"), width)


def render_choices(session: Session, conclusion: Conclusion, screen: Screen) -> Iterator[str]:
    """Yield a paragraph for each group: what is recommended, and the command to paste.

    Groups with the same work have one recommendation; before it, the effects of binding and of the number of
    ranks.
    """
    groups, choices = conclusion.groups, list(list_choices(session, conclusion))
    together = session.rules.same_work and len(groups) > 1
    if together:
        yield "\n".join(_explain_effects(session, groups, screen.text_width))
    for shown in [groups] if together else [[group] for group in groups]:
        choice = next((choice for choice in choices if choice[1] in shown), None)
        several = len(shown) < len(groups)
        label = f"recommended for {count(shown[0].ranks or 0, 'rank')}" if several else "recommended"
        text = _explain_choice(choice, session, together=together) if choice else _explain_none(shown)
        lines = [render_paragraph(label, text, screen.text_width)]
        if choice and not (choice[0].kind is Kind.UNBOUND and choice[0].ranks > 1):
            command = make_command(choice[0], session.command)
            lines.append(f"    {join_command(command, ascii_only=not screen.is_unicode)}")
        yield "\n".join(lines)


def _explain_effects(session: Session, groups: Sequence[GroupConclusion], width: int) -> Iterator[str]:
    for group in groups:
        for comparison in group.comparisons:
            is_reference = comparison.result is ComparisonResult.REFERENCE
            if comparison.candidate == group.choice and not is_reference:
                label = f"effect of {'ranks' if group.ranks is None else 'binding'}"
                text = f"{comparison.candidate} is {_explain_ratio(comparison, group.reference, session)}"
                if comparison.result in (ComparisonResult.SAME, ComparisonResult.UNKNOWN):
                    text += f"; {render_result(comparison)}"
                yield render_paragraph(label, clean_line(text), width)


def _explain_choice(choice: Choice, session: Session, *, together: bool) -> str:
    """Return what is known about a choice, in words; of groups `together` its ratios are shown before."""
    candidate, group, comparison = choice
    if together:
        group = group.replace(ranks=None)  # names keep their number of ranks
    name, reference = (shorten_name(each, group) for each in (comparison.candidate, group.reference))
    if comparison.result is ComparisonResult.REFERENCE:
        what = ", the command without ompbind" if candidate.kind is Kind.UNBOUND else ""
        others = {each.result for each in group.comparisons if each.candidate != group.reference}
        if others == {ComparisonResult.DISQUALIFIED}:
            return f"nothing was compared: all candidates but {name}{what} have failed"
        return f"no candidate is known to be better than {name}{what}"
    return name if together else f"{name}, {_explain_ratio(comparison, reference, session)}"


def _explain_ratio(comparison: Comparison, reference: str, session: Session) -> str:
    as_good = "good" if session.metrics[0].pattern else "fast"
    compared = f"{render_ratio(comparison.ratio)} times as {as_good} as {reference}"
    interval = f", interval {render_interval(comparison.interval)}" if comparison.interval else ""
    return f"{compared}{interval}, from {count(comparison.rounds, 'round')}"


def _explain_none(groups: Sequence[GroupConclusion]) -> str:
    if not any(group.reference for group in groups):
        return "nothing; no candidate could be measured"
    needed = [each.more_rounds for group in groups for each in group.comparisons if each.more_rounds]
    if not needed:
        return "nothing yet; the runs do not show which candidate is better"
    more = render_more_rounds(min(needed))
    return f"nothing yet; {more} would decide (see --max-rounds, --budget, --results)"
