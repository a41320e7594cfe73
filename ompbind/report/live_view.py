"""The view of `inspect --watch`: use of CPUs, ranks and threads, and migrations, fitted to a screen."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ompbind.cpuset import CpuSet, union
from ompbind.inspection.compare_samples import CpuUse, RankUse, SampleDelta, ThreadUse
from ompbind.inspection.verdict import ThreadIssue
from ompbind.report.text import Screen, render_cpus
from ompbind.severity import Severity
from ompbind.text import clean_lines

_NARROW = 64  # characters of a line below which tables have fewer columns and shorter titles
_OMITTED_IF_NARROW = ("threads", "migrations/s", "last CPU")
_TITLES_IF_NARROW = {"affinity mask": "mask"}

_GROUP_TITLES = ("rank", "pid", "threads", "affinity mask", "%CPU", "migrations/s", "verdict")
_THREAD_TITLES = ("rank", "thread", "name", "affinity mask", "last CPU", "%CPU", "migrations/s")
_RIGHT_ALIGNED = {"rank", "pid", "threads", "%CPU", "migrations/s", "thread", "last CPU"}

_SHARED_ISSUES_SHOWN = 2
_BARS_MOST = 16  # CPUs that are drawn as bars; more CPUs are drawn as a character each

_STYLES = {
    Severity.OK: "green",
    Severity.NOTE: "yellow",
    Severity.WARNING: "bold yellow",
    Severity.ERROR: "bold red",
}


def make_view(delta: SampleDelta, head: str, screen: Screen) -> RenderableType:
    """Make a view that is not higher than the screen: CPUs, then groups, shared issues and threads."""
    cpus = _draw_cpus(delta, screen)
    shared = [
        f"{_render_codes(issue.severity, [issue])} ({clean_lines(issue.text)})"
        for issue in delta.shared_issues[:_SHARED_ISSUES_SHOWN]
    ]
    rows = max(screen.height - len(cpus) - len(shared) - 4, 4)
    group_rows = min(len(delta.groups), max(rows // 2, rows - len(delta.threads)))
    parts: list[RenderableType] = [Text(head, style="dim", no_wrap=True), *cpus]
    parts.append(_make_table(_GROUP_TITLES, list(_make_group_rows(delta.groups, group_rows)), screen))
    parts.extend(Text(line, no_wrap=True, overflow="ellipsis") for line in shared)
    threads = delta.threads[: max(rows - group_rows - 1, 1)]
    parts.append(_make_table(_THREAD_TITLES, list(map(_make_thread_row, threads)), screen))
    return Group(*parts)


def _draw_cpus(delta: SampleDelta, screen: Screen) -> list[Text]:
    """Draw the CPUs on which the threads are allowed: few as bars, many as one character each."""
    last = CpuSet(use.thread.cpu for use in delta.threads if use.thread.cpu is not None)
    shown = union(use.group.cpus for use in delta.groups) | last
    uses = [use for use in delta.cpus if use.cpu in shown]
    few = len(uses) <= _BARS_MOST
    cells = [_draw_bar(use, screen) for use in uses] if few else _draw_characters(uses, screen)
    per_line = max(screen.width // 20, 1) if few else 1
    lines = [
        "".join(cell.ljust(20) for cell in cells[i : i + per_line]) for i in range(0, len(cells), per_line)
    ]
    return [Text(line.rstrip(), no_wrap=True) for line in lines[: max(screen.height // 3, 1)]]


def _draw_bar(use: CpuUse, screen: Screen) -> str:
    full = round(use.share * 5)
    bar = ("█" if screen.draws else "#") * full + ("·" if screen.draws else ".") * (5 - full)
    return f"CPU {use.cpu:<3} {bar} {use.share:>4.0%}"


def _draw_characters(uses: list[CpuUse], screen: Screen) -> list[str]:
    """Draw a character for each CPU, in lines of at most 64 each with its first CPU before it."""
    steps = " ▁▂▃▄▅▆▇█" if screen.draws else " 12345678"
    per_line = min(64, screen.width - 8)
    text = "".join(steps[min(round(use.share * 8), 8)] for use in uses)
    return [f"{uses[i].cpu:>5} |{text[i : i + per_line]}|" for i in range(0, len(uses), per_line)]


def _make_group_rows(groups: tuple[RankUse, ...], rows: int) -> Iterator[Sequence[str | Text]]:
    """Yield a row for each group; if they do not fit, those with errors come first."""
    fits = rows >= len(groups)
    shown = groups if fits else tuple(sorted(groups, key=_severity_key))[: max(rows - 1, 1)]
    for use in shown:
        group, verdict = use.group, use.group.verdict
        codes = _render_codes(verdict.severity, verdict.issues)
        yield (
            "-" if group.rank is None else str(group.rank),
            str(group.first.pid),
            str(verdict.threads),
            _shorten_cpus(group.cpus),
            f"{use.share:.0%}",
            f"{use.migrations_per_s:.0f}",
            Text(codes, style=_STYLES[verdict.severity], no_wrap=True),
        )
    if len(shown) < len(groups):
        yield "...", "", "", f"{len(groups) - len(shown)} more", "", "", ""


def _render_codes(severity: Severity, issues: Iterable[ThreadIssue]) -> str:
    """Return the severity and the codes of issues, which are short enough for a column."""
    codes = dict.fromkeys(issue.code for issue in issues if issue.severity is not Severity.OK)
    return f"{severity}: {', '.join(codes)}" if codes else str(severity)


def _severity_key(use: RankUse) -> tuple[int, float]:
    return -list(_STYLES).index(use.group.verdict.severity), -use.share


def _make_thread_row(use: ThreadUse) -> Sequence[str | Text]:
    return (
        "-" if use.group.rank is None else str(use.group.rank),
        str(use.thread.tid),
        Text(clean_lines(use.thread.name), no_wrap=True),
        _shorten_cpus(use.thread.cpus),
        "-" if use.thread.cpu is None else str(use.thread.cpu),
        f"{use.share:.0%}",
        f"{use.migrations_per_s:.0f}",
    )


def _shorten_cpus(cpus: CpuSet) -> str:
    """Return CPUs as text of at most 15 characters: a long list as its first CPU and how many there are."""
    text = render_cpus(cpus)
    return text if len(text) <= 15 else f"{cpus.first}...({len(cpus)})"


def _make_table(titles: Sequence[str], rows: Sequence[Sequence[str | Text]], screen: Screen) -> Table:
    """Make a table, with fewer columns on narrow screens so that numbers and verdicts are readable."""
    has_verdict = "verdict" in titles
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False, expand=has_verdict)
    narrow = screen.width < _NARROW
    kept = [i for i, title in enumerate(titles) if not (narrow and title in _OMITTED_IF_NARROW)]
    for title in (titles[i] for i in kept):
        table.add_column(
            _TITLES_IF_NARROW.get(title, title) if narrow else title,
            justify="right" if title in _RIGHT_ALIGNED else "left", overflow="ellipsis",
            ratio=1 if title == "verdict" else None,
            no_wrap=title not in ("name", "verdict"),  # these columns shrink first
        )  # fmt: skip
    for row in rows:
        table.add_row(*(row[i] for i in kept))
    return table
