"""What tables show of the runs of a session: values and texts of numbers."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor, log10
from statistics import median

from ompbind.bench.candidates import drop_ranks
from ompbind.bench.records import (
    Candidate,
    Comparison,
    Conclusion,
    GroupConclusion,
    Kind,
    Metric,
    Run,
    Session,
)
from ompbind.cpuset import count
from ompbind.record import Record
from ompbind.report.text import clip, make_visible, render_age
from ompbind.text import clean_line


def list_compared_runs(session: Session) -> Mapping[str, tuple[Run, ...]]:
    """Return the runs that count, by candidate: valid ones, without warm-ups."""
    found: dict[str, list[Run]] = {candidate.name: [] for candidate in session.candidates}
    for run in session.runs:
        if run.counts:
            found.setdefault(run.candidate, []).append(run)
    return {name: tuple(runs) for name, runs in found.items()}


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


class Recommendation(Record):
    """The candidate to recommend within a group, and its comparison."""

    group: GroupConclusion
    candidate: Candidate
    comparison: Comparison


def list_choices(session: Session, conclusion: Conclusion) -> Iterator[Recommendation]:
    """Yield the choice of each group that has one; each candidate once, with its number of ranks."""
    candidates = index_candidates(session)
    for group in conclusion.groups:
        for comparison in group.comparisons:
            if comparison.candidate == group.choice and group.choice in candidates:
                yield Recommendation(
                    group=group, candidate=candidates.pop(group.choice), comparison=comparison
                )


def index_candidates(session: Session) -> dict[str, Candidate]:
    """Return the candidates by name."""
    return {candidate.name: candidate for candidate in session.candidates}


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
    escaped = "".join(
        char
        if char.isprintable() and (char.isascii() or not ascii_only)
        else "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in word.replace("\\", "\\\\").replace("'", "\\'")
    )
    return f"$'{escaped}'"


_WIDEST = 5  # decimals of a number below 10, at most; larger numbers have fewer


class Scale(Record):
    """How values of one metric are written: multiplied by `factor`, with `decimals` and `unit`."""

    factor: float = 1.0
    decimals: int = 0
    unit: str = ""

    def render(self, value: float | None) -> str:
        """Return a value with its unit, "-" for None."""
        if value is None:
            return "-"
        scaled = value * self.factor
        number = f"{scaled:.3e}" if abs(scaled) >= 1e7 else f"{scaled:.{self.decimals}f}"
        return f"{number} {self.unit}" if self.unit else number


def make_scale(metric: Metric, values: Iterable[float]) -> Scale:
    """Return how to write values of a metric so that the smallest has four digits, and all one unit."""
    sizes = [abs(value) for value in values if value]
    least, most = min(sizes, default=1.0), max(sizes, default=1.0)
    factor, unit = 1.0, ""
    if not metric.pattern:
        factor, unit = (1e3, "ms") if most < 1 else (1.0, "s")
    needed = 3 - floor(log10(least * factor))
    limit = _WIDEST - max(floor(log10(most * factor)), 0)
    return Scale(factor=factor, decimals=max(0, min(needed, limit, 3 if unit else _WIDEST)), unit=unit)


def render_ratio(ratio: float, *, is_fine: bool = False) -> str:
    """Return a ratio with three digits; with three decimals near 1, or on request."""
    if not 0.01 <= ratio < 1000:
        return f"{ratio:.1e}"
    if is_fine or _is_near_one(ratio):
        return f"{ratio:.3f}"
    return f"{ratio:.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}"


def _is_near_one(ratio: float) -> bool:
    return 0.95 <= ratio < 1.05


def render_interval(interval: tuple[float, float] | None) -> str:
    """Return the interval of a ratio, "" for None; if it is narrow, both ends have equal decimals."""
    if interval is None:
        return ""
    low, high = interval
    is_fine = high < 1.1 * low and any(map(_is_near_one, interval))
    return " to ".join(render_ratio(end, is_fine=is_fine) for end in interval)


def align_points(numbers: Iterable[str]) -> list[str]:
    """Add spaces after numbers, so that the decimal points are below each other if the ends are."""
    texts = list(numbers)
    tails = [len(text) - text.find(".") if "." in text else 0 for text in texts]
    return [text + " " * (max(tails) - tail) for text, tail in zip(texts, tails, strict=True)]


def render_more_rounds(rounds: int) -> str:
    """Return about how many more rounds are needed; the estimate of a large number is rough."""
    if rounds > 1000:
        return "more than 1,000 more rounds"
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


def find_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known, None without any."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
