"""The view of `inspect --watch`: use of CPUs, ranks, issues and the busiest threads, fitted to a screen."""

from collections.abc import Iterable, Iterator, Sequence

from ompbind.cpuset import CpuSet, count, union
from ompbind.inspection.rank_processes import RankProcesses
from ompbind.inspection.samples import RankUse, SampleDelta, ThreadUse
from ompbind.inspection.verdict import ThreadIssue
from ompbind.record import Record
from ompbind.report.text import Screen, count_columns, render_bytes, render_cpus, wrap_indented
from ompbind.text import Severity, clean_lines

# Tables of `inspect --watch`: a line for each row; a narrow screen has fewer columns.
#
# Tables of other commands wrap long cells instead (`text.render_table`): there, each word counts.
#
# Drawn without a library: with 4 ranks of 16 threads, tables of rich take 14 ms for 80x24 characters and 25
# ms for 160x50, this takes 0.5 and 0.9 ms. A sample takes 11 ms, so rich alone would bring the view above 1
# % of a CPU at the default interval.
#


GAP = "  "
_LEAST_LAST = len("warning: oversubscribed")  # other columns are left out for so much of the last one

_STYLES = {Severity.OK: "32", Severity.NOTE: "33", Severity.WARNING: "1;33", Severity.ERROR: "1;31"}
"""Numbers of the escape sequences for colours and bold text."""

BOLD, FAINT = "1", "2"
"""Numbers of the escape sequences for bold and faint text."""


class LiveColumn(Record):
    """A column. `least` is its least width, so that the table does not change with every number.

    If the screen is too narrow, the columns with the highest `order` are left out first; 0 is always shown.
    """

    title: str
    order: int = 0
    least: int = 0
    right: bool = True


class LiveRow(Record):
    """A row: a cell for each column; the last one has the colour of the severity, if there is one."""

    cells: tuple[str, ...]
    severity: Severity | None = None


_SHARED_ISSUES_SHOWN = 2
_BARS_MOST = 16  # CPUs that are drawn as bars; more CPUs are drawn as a character each
_STRIP_WIDTHS = ((120, 32), (100, 16), (0, 8))
"""Characters of the CPUs of a rank, by the least width of the screen."""

_NODES_SHOWN = 2  # NUMA nodes that are named for a rank

_GROUP_COLUMNS = (
    LiveColumn(title="run", order=9, right=False),
    LiveColumn(title="rank"),
    LiveColumn(title="pid", order=8),
    LiveColumn(title="threads", order=6),
    LiveColumn(title="mask", order=2, right=False),
    LiveColumn(title="CPUs", order=3, right=False),
    LiveColumn(title="%CPU", least=5),
    LiveColumn(title="%wait", order=4, least=5),
    LiveColumn(title="migr/s", order=5, least=6),
    LiveColumn(title="memory", order=1, least=8),
    LiveColumn(title="by node", order=7, right=False),
    LiveColumn(title="verdict", right=False),
)
_THREAD_COLUMNS = (
    LiveColumn(title="rank"),
    LiveColumn(title="thread", order=2),
    LiveColumn(title="mask", right=False),
    LiveColumn(title="last CPU", order=4),
    LiveColumn(title="%CPU", least=5),
    LiveColumn(title="%wait", order=1, least=5),
    LiveColumn(title="migr/s", order=3, least=6),
    LiveColumn(title="name", right=False),
)


def render_view(delta: SampleDelta, head: str, screen: Screen) -> tuple[str, ...]:
    """Render the lines of a view that fits the screen: totals, CPUs, groups, shared issues and threads."""
    cpus = _draw_cpus(delta, screen)
    shared, most = list[str](), max(1, screen.height // 6)  # lines of an issue
    for issue in delta.shared_issues[:_SHARED_ISSUES_SHOWN]:
        text = f"{_render_codes(issue.severity, [issue])} ({clean_lines(issue.text)})"
        wrapped = wrap_indented(text, screen.width).split("\n")
        shared += [*wrapped[: most - 1], " ".join(wrapped[most - 1 :])] if len(wrapped) > most else wrapped
    rows = max(screen.height - len(cpus) - len(shared) - 4, 4)  # without two lines of totals, two of titles
    groups = len(delta.groups) + len(delta.absent_ranks)
    shown = min(groups, max(rows // 2, rows - len(delta.threads)))
    threads = delta.threads[: max(rows - shown, 1)]
    group_rows = list(_make_group_rows(delta, shown, screen))
    ids = [use.group.run_id for use in delta.groups] + [run_id for run_id, _ in delta.absent_ranks]
    runs = list(dict.fromkeys(filter(None, ids)))
    first = 0 if len(runs) > 1 else 1  # the table of groups has a column for the run if there are several
    named_runs = [f"run {runs[0]}" if len(runs) == 1 else count(len(runs), "run")] if runs else []
    thread_rows = []
    for use in threads:
        thread = use.thread
        cpu = "-" if thread.cpu is None else str(thread.cpu)
        place = (_name_rank(use.group.rank), str(thread.tid), _shorten_cpus(thread.cpus), cpu)
        thread_rows.append(LiveRow(cells=(*place, *_render_uses(use), thread.name)))
    lines = [
        style(fit(GAP.join([*named_runs, head]), screen.width), FAINT, screen),
        fit(_render_totals(delta), screen.width),
        *(fit(line, screen.width) for line in cpus),
        *render_live_table(
            _GROUP_COLUMNS[first:], [row.replace(cells=row.cells[first:]) for row in group_rows], screen
        ),
        *(fit(line, screen.width) for line in shared),
        *render_live_table(_THREAD_COLUMNS, thread_rows, screen),
    ]
    return tuple(lines[: screen.height])


def _render_totals(delta: SampleDelta) -> str:
    """Return the sums over all groups; throttling only if a CPU quota counts periods."""
    if not delta.groups:
        return "no processes"
    delays = [use.delay_share for use in delta.threads if use.delay_share is not None]
    others = sum(use.group.rank is None for use in delta.groups)
    ranks = len(delta.groups) - others
    shares = [cgroup.throttled_periods / max(cgroup.periods, 1) for cgroup in delta.throttlings]
    parts = [
        count(ranks, "rank") if ranks else "",
        ("1 process" if others == 1 else f"{others} processes") if others else "",
        count(len(delta.threads), "thread"),
        f"{sum(use.share for use in delta.groups):.0%} CPU",
        f"{sum(delays):.0%} wait" if delays else "",
        f"{max(shares):.0%} throttled" if shares else "",  # the cgroup that was throttled most
        f"{sum(use.migrations_per_s for use in delta.groups):.0f} migr/s",
        render_bytes(sum(use.resident_bytes for use in delta.groups)),
    ]
    return GAP.join(filter(None, parts))


def _draw_cpus(delta: SampleDelta, screen: Screen) -> list[str]:
    """Draw the CPUs of all groups, few as bars, many as one character each, and the used memory of nodes."""
    last = CpuSet(use.thread.cpu for use in delta.threads if use.thread.cpu is not None)
    shown = union(_find_cpus(use.group) for use in delta.groups) | last
    uses = [use for use in delta.cpus if use.cpu in shown]
    nodes = [(f"memory of node {node.node}", 1 - node.share_free) for node in delta.nodes[:_BARS_MOST]]
    memory = _draw_bars(nodes, screen)
    if len(uses) <= _BARS_MOST:
        lines = [*_draw_bars([(f"CPU {use.cpu}", use.share) for use in uses], screen), *memory]
    else:
        per_line = min(64, screen.width - 8)  # CPUs, each a character; the first has its number before it
        strip = _draw_strip([use.share for use in uses], screen)
        parts = range(0, len(uses), per_line)
        lines = memory + [f"{uses[i].cpu:>5} |{strip[i : i + per_line]}|" for i in parts]
    return lines[: max(screen.height // 3, 1)]


def _find_cpus(group: RankProcesses) -> CpuSet:
    """Return the CPUs on which the threads of a group are allowed, and the CPUs of its plan, if any."""
    return group.cpus | group.expected.cpus if group.expected else group.cpus


def _draw_bars(shares: Sequence[tuple[str, float]], screen: Screen) -> list[str]:
    """Draw (name, share) pairs as bars, several in a line."""
    full, empty = ("█", "·") if screen.has_box_characters else ("#", ".")
    cells = []
    longest = max((len(name) for name, _ in shares), default=0)
    for name, share in shares:
        length = round(share * 5)
        cells.append(f"{name:<{max(longest, 7)}} {full * length}{empty * (5 - length)} {share:>4.0%}  ")
    each = max(screen.width // len(cells[0]), 1) if cells else 1
    return ["".join(cells[i : i + each]).rstrip() for i in range(0, len(cells), each)]


def _draw_strip(shares: Sequence[float], screen: Screen) -> str:
    """Return a character for each share."""
    steps = "·▁▂▃▄▅▆▇█" if screen.has_box_characters else ".12345678"
    return "".join(steps[min(round(share * 8), 8)] for share in shares)


def _make_group_rows(delta: SampleDelta, rows: int, screen: Screen) -> Iterator[LiveRow]:
    """Yield a row for each group and each absent rank; if they do not fit, those with errors come first."""
    shown, total = delta.groups, len(delta.groups) + len(delta.absent_ranks)
    after = [_make_mark(run_id, str(rank), "not running") for run_id, rank in delta.absent_ranks]
    if total > rows:
        order = list(Severity)
        by_severity = sorted(shown, key=lambda use: (order.index(use.group.verdict.severity), -use.share))
        shown = tuple(by_severity)[: max(rows - 1, 1)]
        after = [_make_mark("", "...", f"{total - len(shown)} more")]
    shares = {use.cpu: use.share for use in delta.cpus}
    width = next(width for least, width in _STRIP_WIDTHS if screen.width >= least)
    for use in shown:
        found = [shares[cpu] for cpu in _find_cpus(use.group) if cpu in shares]
        each = -(-len(found) // width)  # CPUs per character; of several, their mean
        parts = (found[i : i + each] for i in range(0, len(found), each or 1))
        yield _make_group_row(use, _draw_strip([sum(part) / len(part) for part in parts], screen))
    yield from after


def _make_mark(run_id: str, rank: str, text: str) -> LiveRow:
    """Return a row without numbers."""
    cells = {"run": run_id, "rank": rank, "verdict": text}
    return LiveRow(cells=tuple(cells.get(column.title, "") for column in _GROUP_COLUMNS))


def _make_group_row(use: RankUse, strip: str) -> LiveRow:
    group, verdict = use.group, use.group.verdict
    codes = _render_codes(verdict.severity, verdict.issues)
    cells = (
        group.run_id or "",
        _name_rank(group.rank),
        str(group.first.pid),
        str(verdict.threads),
        _shorten_cpus(group.cpus),
        strip,
        *_render_uses(use),
        render_bytes(use.resident_bytes),
        _render_nodes(use.nodes),
        codes if group.attempt == 1 else f"{codes}, start {group.attempt}",
    )
    return LiveRow(cells=cells, severity=verdict.severity)


def _name_rank(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def _render_uses(use: RankUse | ThreadUse) -> tuple[str, str, str]:
    """Return the cells of CPU use, waiting and migrations."""
    delay = "-" if use.delay_share is None else f"{use.delay_share:.0%}"
    return f"{use.share:.0%}", delay, f"{use.migrations_per_s:.0f}"


def _render_nodes(nodes: Sequence[tuple[int, int]]) -> str:
    """Return the percentage of memory on each node, the largest first: "0:98% 1:2%"."""
    total = sum(size for _, size in nodes)
    largest = sorted((pair for pair in nodes if pair[1]), key=lambda pair: -pair[1])
    shown = " ".join(f"{node}:{size / total:.0%}" for node, size in largest[:_NODES_SHOWN])
    return f"{shown} ..." if len(largest) > _NODES_SHOWN else shown


def _render_codes(severity: Severity, issues: Iterable[ThreadIssue]) -> str:
    """Return the severity and the codes of issues, which are short enough for a column."""
    codes = dict.fromkeys(issue.code for issue in issues if issue.severity is not Severity.OK)
    return f"{severity}: {', '.join(codes)}" if codes else str(severity)


def _shorten_cpus(cpus: CpuSet) -> str:
    """Return CPUs as text of at most 15 characters: a long list as its first CPU and how many there are."""
    text = render_cpus(cpus)
    return text if len(text) <= 15 else f"{cpus.first}...({len(cpus)})"


def render_live_table(
    columns: Sequence[LiveColumn], rows: Sequence[LiveRow], screen: Screen
) -> Iterator[str]:
    """Yield the lines of a table. The last column gets the rest of the line, and is cut if it is too long."""
    widths = [_find_width(column, [row.cells[i] for row in rows]) for i, column in enumerate(columns)]
    shown = _choose_columns(columns, widths, screen.width)
    last = screen.width - sum(widths[i] + len(GAP) for i in shown[:-1])
    titles = [_align(columns[i], columns[i].title, widths[i]) for i in shown[:-1]]
    yield style(GAP.join([*titles, fit(columns[-1].title, last)]), BOLD, screen)
    for row in rows:
        cells = [_align(columns[i], row.cells[i], widths[i]) for i in shown[:-1]]
        text = fit(row.cells[-1], last)
        cells.append(style(text, _STYLES[row.severity], screen) if row.severity else text)
        yield GAP.join(cells).rstrip()


def _find_width(column: LiveColumn, cells: Sequence[str]) -> int:
    """Return the width of a column; 0 if all its cells are empty."""
    if cells and not any(cells):
        return 0
    return max(column.least, *map(count_columns, (column.title, *cells)))


def _choose_columns(columns: Sequence[LiveColumn], widths: Sequence[int], width: int) -> list[int]:
    """Return the indices of the columns that fit, without empty columns.

    The last column keeps what it needs, or `_LEAST_LAST`.
    """
    shown = [i for i, column in enumerate(columns) if widths[i]]
    last = min(widths[-1], _LEAST_LAST)
    for i in sorted(shown, key=lambda i: -columns[i].order):
        if sum(widths[j] + len(GAP) for j in shown[:-1]) + last <= width or not columns[i].order:
            break
        shown.remove(i)
    return shown


def _align(column: LiveColumn, text: str, width: int) -> str:
    space = " " * (width - count_columns(text))
    return space + text if column.right else text + space


def fit(text: str, width: int) -> str:
    """Return a text without control characters, cut to a width."""
    text = clean_lines(text)
    if count_columns(text) <= width:
        return text
    while count_columns(text) > width - 3:
        text = text[:-1]
    return f"{text}..."


def style(text: str, code: str, screen: Screen) -> str:
    """Return a text with colours, if the screen has them."""
    return f"\x1b[{code}m{text}\x1b[m" if screen.styled else text
