"""A glance at running processes for a screen: how busy CPUs, ranks and threads are, and who moves around."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ompbind.cpuset import CpuSet, union
from ompbind.inspection.sampling import CpuUse, RankUse, SampleDelta, ThreadUse
from ompbind.inspection.verdict import ThreadIssue
from ompbind.report.text import Screen, render_cpus
from ompbind.severity import Severity
from ompbind.text import plain

_NARROW = 64  # columns of a screen below which tables leave some of theirs out
_SPARED = ("threads", "moves/s", "on")  # what they leave out, so that numbers and verdicts can still be read

_CREW_TITLES = ("rank", "pid", "threads", "may run on", "use", "moves/s", "verdict")
_THREAD_TITLES = ("rank", "thread", "name", "may run on", "on", "use", "moves/s")

_SHARED = 2  # findings on several crews that are shown

_STYLES = {Severity.OK: "green", Severity.NOTE: "yellow", Severity.ERROR: "bold red"}


def make_view(delta: SampleDelta, head: str, screen: Screen) -> RenderableType:
    """Make what a screen shows of a glance, no higher than it is."""
    cpus = _draw_cpus(delta, screen)
    shared = [_judged(one.severity, [one]) + f" ({plain(one.text)})" for one in delta.together][:_SHARED]
    rows = max(screen.height - len(cpus) - len(shared) - 4, 4)
    crews = min(len(delta.crews), max(rows // 2, rows - len(delta.threads)))
    parts: list[RenderableType] = [Text(head, style="dim", no_wrap=True), *cpus]
    parts.append(_table(_CREW_TITLES, list(_crew_rows(delta.crews, crews)), screen))
    parts.extend(Text(line, no_wrap=True, overflow="ellipsis") for line in shared)
    threads = delta.threads[: max(rows - crews - 1, 1)]
    parts.append(_table(_THREAD_TITLES, list(map(_thread_row, threads)), screen))
    return Group(*parts)


def _draw_cpus(delta: SampleDelta, screen: Screen) -> list[Text]:
    """Draw the CPUs that the threads may use: bars with numbers for few, a sign for each of many."""
    last = CpuSet(one.thread.cpu for one in delta.threads if one.thread.cpu is not None)
    mine = union(one.crew.cpus for one in delta.crews) | last
    uses = [one for one in delta.cpus if one.cpu in mine]
    few = len(uses) <= 16
    cells = [_bar(one, screen) for one in uses] if few else _signs(uses, screen)
    across = max(screen.width // 20, 1) if few else 1
    lines = ["".join(cell.ljust(20) for cell in cells[i : i + across]) for i in range(0, len(cells), across)]
    return [Text(line.rstrip(), no_wrap=True) for line in lines[: max(screen.height // 3, 1)]]


def _bar(use: CpuUse, screen: Screen) -> str:
    full = round(use.share * 5)
    bar = ("█" if screen.draws else "#") * full + ("·" if screen.draws else ".") * (5 - full)
    return f"CPU {use.cpu:<3} {bar} {use.share:>4.0%}"


def _signs(uses: list[CpuUse], screen: Screen) -> list[str]:
    """Draw one sign for each CPU, lines of 64 with the number of the first in front."""
    steps = " ▁▂▃▄▅▆▇█" if screen.draws else " 12345678"
    each = min(64, screen.width - 8)
    signs = "".join(steps[min(round(one.share * 8), 8)] for one in uses)
    return [f"{uses[i].cpu:>5} |{signs[i : i + each]}|" for i in range(0, len(uses), each)]


def _crew_rows(crews: tuple[RankUse, ...], rows: int) -> Iterator[Sequence[str | Text]]:
    """Yield a row for each crew, problems first where not all of them fit."""
    shown = crews if rows >= len(crews) else tuple(sorted(crews, key=_by_severity))[: max(rows - 1, 1)]
    for one in shown:
        crew, verdict = one.crew, one.crew.verdict
        yield (
            "-" if crew.rank is None else str(crew.rank),
            str(crew.first.pid),
            str(verdict.threads),
            _short(crew.cpus),
            f"{one.share:.0%}",
            f"{one.migrations_per_s:.0f}",
            Text(_judged(verdict.severity, verdict.issues), style=_STYLES[verdict.severity], no_wrap=True),
        )
    if len(shown) < len(crews):
        yield "...", "", "", f"{len(crews) - len(shown)} more", "", "", ""


def _judged(severity: Severity, issues: Iterable[ThreadIssue]) -> str:
    """Say how bad it is and what was found, by codes: there is no room for sentences."""
    codes = dict.fromkeys(one.code for one in issues if one.severity is not Severity.OK)
    return f"{severity}: {', '.join(codes)}" if codes else str(severity)


def _by_severity(use: RankUse) -> tuple[int, float]:
    return -list(_STYLES).index(use.crew.verdict.severity), -use.share


def _thread_row(one: ThreadUse) -> Sequence[str | Text]:
    return (
        "-" if one.crew.rank is None else str(one.crew.rank),
        str(one.thread.tid),
        Text(plain(one.thread.name), no_wrap=True),
        _short(one.thread.cpus),
        "-" if one.thread.cpu is None else str(one.thread.cpu),
        f"{one.share:.0%}",
        f"{one.migrations_per_s:.0f}",
    )


def _short(cpus: CpuSet) -> str:
    """Write CPUs in few characters: the first and how many, where the list is long."""
    text = render_cpus(cpus)
    return text if len(text) <= 15 else f"{cpus.first}...({len(cpus)})"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str | Text]], screen: Screen) -> Table:
    """Make a table of all columns that there is room for."""
    wide = "verdict" in titles
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False, expand=wide)
    right = {"rank", "pid", "threads", "use", "moves/s", "thread", "on"}
    kept = [i for i, title in enumerate(titles) if screen.width >= _NARROW or title not in _SPARED]
    for title in (titles[i] for i in kept):
        grows = title == "verdict"
        table.add_column(
            title, justify="right" if title in right else "left", overflow="ellipsis",
            ratio=1 if grows else None, no_wrap=title not in ("name", "verdict"),  # these give way first
        )  # fmt: skip
    for row in rows:
        table.add_row(*(row[i] for i in kept))
    return table
