"""A machine as rows of cores, one row for each cache or node: in a plan's picture with the rank of each core.

    package 0, NUMA node 0 (64 GiB)
      L3 0  0 0 0 0 1 1 1 1
      L3 1  1 1 2 2 2 2 2 R
        gpu:0

A symbol says what a core is used for; colours only repeat it:

    0        rank 0                            R    reserved
    0/1      ranks 0 and 1                     .    idle
    0-3      ranks 0 to 3                      *    excluded by default (isolated, nohz_full)
    0+       rank 0 and several others         o    used by other runs
    0s       for service threads of rank 0     -    not allowed
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import Literal

from ompbind.cpuset import CpuSet, count, named, render_range
from ompbind.machine.devices import Device
from ompbind.machine.model import Level, Machine
from ompbind.planning.plan import Placement, Plan
from ompbind.report import topology
from ompbind.report.plan import make_plan_heading
from ompbind.report.text import Screen, count_columns, render_cpus, wrap_indented
from ompbind.text import clean_lines

LINES = 72
"""Lines of cores; in a longer picture neighbouring cores are counted, and then inner levels are left out."""

KEYS = 16  # ranks that a legend lists one by one

_SYMBOL_LIMIT = 11  # characters of the longest symbol: as many as two neighbouring ranks take at most
_LIST_LIMIT = 48  # characters of the longest CPU list in a legend; a longer list is replaced by its length

_COLOURS = (110, 209, 117, 186, 36, 148, 217)
"""Colours that ranks take in turn: light, for black text, in an order for colour-blind readers.

A prime number of them, so that rows of 2, 4 or 8 ranks differ from each other.
"""

_CACHES = (Level.L3, Level.CLUSTER, Level.L2)

_SHARED, _BOLD, _FAINT = "7", "1", "2"  # parameters of escape sequences

_UNUSED = {
    "R": ("reserved", _BOLD),
    ".": ("idle", _FAINT),
    "*": ("excluded by default", _FAINT),
    "o": ("used by other runs", _FAINT),
    "-": ("not allowed", _FAINT),
}
"""The words and the style of the symbols of cores without a rank; a core gets the first of its CPUs."""

SVG_SCREEN = Screen(width=100, height=1000, styled=True)  # the screen whose text becomes a picture

_TEMPLATE = """\
<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px monospace; white-space: pre }}
{styles}
</style>
<defs>
{lines}
</defs>
<rect width="100%" height="100%" fill="#ffffff"/>
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</svg>
"""

_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent."""

_Cell = tuple[str, str]
"""What is shown of a core: its symbol, and its style, the parameters of an escape sequence."""


def render_picture(plan: Plan, screen: Screen) -> str:
    """Render the plan as a picture that fits a screen, with a legend and its warnings."""
    cells = _mark_cores(plan)
    body, counts = _render_body(plan.machine, cells, screen)
    legend = _make_legend(plan, dict(cells))
    if counts:
        legend[f"{screen.times}2", ""] = "two cores beside each other"
    width = max((len(symbol) for symbol, _ in legend), default=0)
    keys = []
    for (symbol, style), words in legend.items():
        first, *further = wrap(words, screen.width - width - 2, break_on_hyphens=False)
        keys.append(f"{' ' * (width - len(symbol))}{_colour(symbol, style, screen)}  {first}")
        keys += [f"{' ' * (width + 2)}{line}" for line in further]
    # a picture of cores does not show idle hardware threads of used cores
    idle = plan.machine.table.whole(plan.used) & plan.idle
    notes = [f"note: {count(len(idle), 'idle hardware thread')} on cores of ranks"] if idle else []
    notes += [f"warning: {note.text}" for note in plan.all_notes if note.warning]
    return _join(make_plan_heading(plan), [body, keys], notes, screen)


def render_plan_svg(plan: Plan) -> str:
    """Render the picture of a plan as an SVG file."""
    return render_svg(render_picture(plan, SVG_SCREEN), " ".join(make_plan_heading(plan)))


def render_machine_svg(machine: Machine) -> str:
    """Render a machine as an SVG file, with the numbers of the CPUs of each core."""
    unused = machine.online - machine.allowed | machine.excluded_by_default
    shown = (cpus & machine.online for cpus in machine.table.cores)
    cells = [(render_cpus(cpus), _FAINT if cpus <= unused else "") for cpus in shown]
    body, _ = _render_body(machine, cells, SVG_SCREEN)
    heading = [machine.source, topology.render_summary(machine), *topology.render_limits(machine)]
    notes = [f"note: {remark}" for remark in machine.remarks]
    return render_svg(_join(heading, [body], notes, SVG_SCREEN), machine.source)


def _join(
    heading: Sequence[str], drawn: Sequence[Sequence[str]], notes: Sequence[str], screen: Screen
) -> str:
    """Join what was drawn, the heading and the notes; these are wrapped."""
    first, last = (
        [wrap_indented(clean_lines(line), screen.width) for line in texts] for texts in (heading, notes)
    )
    text = "\n\n".join("\n".join(lines) for lines in (first, *drawn, last) if lines)
    return text if screen.is_unicode else text.encode("ascii", "replace").decode()


def _mark_cores(plan: Plan) -> list[_Cell]:
    table, used = plan.machine.table, [0] * len(plan.machine.table.cores)
    same: dict[CpuSet, int] = {}  # thousands of ranks may share all CPUs
    for placement in plan.placements:
        same[placement.cpuset] = same.get(placement.cpuset, 0) | 1 << placement.rank
    for cpus, bits in same.items():
        for row in table.rows(cpus):
            used[row] |= bits
    cells = []
    for cpus, bits in zip(table.cores, used, strict=True):
        ranks = CpuSet.from_bits(bits)
        if ranks:
            runs = ranks.ranges()  # with slashes, and three or more neighbours as a range: "0/1", "0-3/8"
            parts = (render_range(start, n) if n != 2 else f"{start}/{start + 1}" for start, n in runs)
            text = "/".join(parts)
            text = text if len(text) <= _SYMBOL_LIMIT else f"{ranks.first}+"
            style = _find_style(ranks.first) if len(ranks) == 1 else _SHARED
            cells.append((text + "s" * cpus.isdisjoint(plan.compute), style))
        else:
            symbol = _find_unused_symbol(plan, cpus & plan.machine.online)
            cells.append((symbol, _UNUSED[symbol][1]))
    return cells


def _find_style(rank: int) -> str:
    return f"38;5;16;48;5;{_COLOURS[rank % len(_COLOURS)]}"


def _make_legend(plan: Plan, shown: Mapping[str, str]) -> dict[_Cell, str]:
    """Return the words of each rank, or of all if they are many, and of each other symbol that is shown."""
    ranks = plan.placements
    legend = {(str(rank.rank), _find_style(rank.rank)): _describe(plan, rank) for rank in ranks}
    if len(ranks) > KEYS:
        legend = {(f"0 to {len(ranks) - 1}", ""): "ranks; --format table lists their CPUs"}
    several = [symbol for symbol, style in shown.items() if style == _SHARED]
    examples = (
        ([symbol for symbol in several if "+" not in symbol], "shared by these ranks"),
        ([symbol for symbol in several if "+" in symbol], "shared by this rank and several others"),
        ([symbol for symbol in shown if symbol.endswith("s")], "for service threads of this rank"),
    )
    legend |= {(symbols[0], shown[symbols[0]]): words for symbols, words in examples if symbols}
    reasons = ", ".join(name for name, _ in plan.machine.exclusion_reasons)
    for symbol, (words, style) in _UNUSED.items():
        if symbol in shown:
            legend[symbol, style] = f"{words} ({reasons})" if symbol == "*" else words
    return legend


def _find_unused_symbol(plan: Plan, cpus: CpuSet) -> str:
    machine = plan.machine
    if not cpus.isdisjoint(plan.reserved):
        return "R"
    allowed = cpus & machine.allowed
    free = allowed - plan.avoided
    if free:
        return "*" if free <= machine.excluded_by_default else "."
    return "o" if allowed else "-"


def _describe(plan: Plan, placement: Placement) -> str:
    """Return what a rank gets: "rank 0: CPUs 0-3, 4 threads, service CPU 4, gpu:0"; "rank 3 (load 2): …"."""
    kinds = [("CPU", placement.compute), ("service CPU", placement.service_cpus)]
    compute, service = (
        named(noun, cpus) if len(render_cpus(cpus)) <= _LIST_LIMIT else count(len(cpus), noun)
        for noun, cpus in kinds
    )
    label = f" ({plan.labels[placement.rank]})" if plan.groups else ""
    parts = [f"rank {placement.rank}{label}: {compute}", count(placement.threads, "thread")]
    parts += [service] if placement.service_cpus else []
    return ", ".join([*parts, *topology.render_device_names(placement.devices)])


def _render_body(machine: Machine, cells: Sequence[_Cell], screen: Screen) -> tuple[list[str], bool]:
    """Return the rows in as much detail as LINES allow, and whether neighbouring cores are counted."""
    table = machine.table
    levels = [  # of several cores, or NUMA nodes, which have a title with their memory
        level
        for level in machine.levels
        if level is Level.NODE
        or (level is not Level.CORE and any(len(table.rows(each.cpus)) > 1 for each in machine.at(level)))
    ]
    rows = [row for row, cpus in enumerate(table.cores) if not cpus.isdisjoint(machine.online)]
    devices = [device for device in machine.devices if device.cpus]
    apart = [", ".join(topology.render_cpuless_node(node)) for node in machine.nodes if not node.cpus]
    apart.append(
        ", ".join(topology.render_device_names(device for device in machine.devices if not device.cpus))
    )
    shown, counts = len(levels), False
    while True:
        items = [*_list_rows(machine, rows, levels[:shown], [], devices, ""), *((text, ()) for text in apart)]
        lines = _render_rows([item for item in items if any(item)], cells, screen, counts=counts)
        if len(lines) <= LINES or not shown:
            return lines, counts
        shown, counts = shown - counts, True


def _list_rows(
    machine: Machine,
    rows: Sequence[int],
    levels: Sequence[Level],
    titles: Sequence[str],
    devices: Sequence[Device],
    indent: str,
) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the title and the cores of each row; lines of outer domains and of devices have no cores.

    `titles` name the domains with all these cores, for the same line. `devices` are near these cores.
    """
    level: Level | Literal["kind"] = levels[0] if levels else "kind"
    column = machine.table.column(level)
    if level in _CACHES:  # a cache of a single core is not shown
        column = tuple(number if column.count(number) > 1 else None for number in column)
    groups = [(number, list(same)) for number, same in groupby(rows, key=lambda row: column[row])]
    if len(groups) > 1 and titles:
        yield f"{indent}{', '.join(titles)}", ()
        indent, titles = f"{indent}  ", []
    rest = list(devices)
    for number, same in groups:
        cpus = CpuSet(cpu for row in same for cpu in machine.table.cores[row]) & machine.online
        inside = [device for device in rest if levels and device.cpus <= cpus]
        rest = [device for device in rest if device not in inside]
        title = []
        if isinstance(level, Level) and number is not None:
            domain = machine.at(level)[number]
            part = "" if cpus == domain.cpus & machine.online else "part of "
            title = [f"{part}{topology.render_title(machine, domain)}"]
        elif number is not None:
            title = [f"{machine.kinds[number].name} core"]
        if levels:
            yield from _list_rows(machine, same, levels[1:], [*titles, *title], inside, indent)
        else:
            yield f"{indent}{', '.join([*titles, *title])}", same
    if rest:
        yield f"{indent}  {', '.join(topology.render_device_names(rest))}", ()


def _render_rows(
    items: Sequence[tuple[str, Sequence[int]]], cells: Sequence[_Cell], screen: Screen, *, counts: bool
) -> list[str]:
    """Return the lines of rows: cores beside the titles, or below titles that take half of the width.

    With `counts`, equal neighbours are one cell: "0×4".
    """
    rows = []
    for title, cores in items:
        row = [cells[core] for core in cores]
        if counts:
            runs = [(symbol, style, len(list(same))) for (symbol, style), same in groupby(row)]
            row = [(f"{symbol}{screen.times}{n}" if n > 1 else symbol, style) for symbol, style, n in runs]
        rows.append((title, row))
    cell_width = max((len(text) for _, row in rows for text, _ in row), default=1)
    short = [count_columns(title) for title, row in rows if row and count_columns(title) <= screen.width // 2]
    lines = []
    for title, row in rows:
        start = max(short, default=0) + 2 if title else 0
        if not row or count_columns(title) > screen.width // 2:
            indent = len(title) - len(title.lstrip())
            lines += wrap(title, screen.width, break_on_hyphens=False, subsequent_indent=" " * (indent + 4))
            title, start = "", indent + 2
        most = max(1, (screen.width - start + 1) // (cell_width + 1))
        if len(row) > most:  # lines of 8, 16, ... cores, or of 4
            most = next(most // step * step for step in (8, 4, 1) if most >= step)
        for at in range(0, len(row), most):
            runs_of_style = groupby(row[at : at + most], key=lambda cell: cell[1])
            texts = (
                _colour(" ".join(text.rjust(cell_width) for text, _ in same), style, screen)
                for style, same in runs_of_style
            )
            lines.append(f"{title.ljust(start) if at == 0 else ' ' * start}{' '.join(texts)}".rstrip())
    return lines


def _colour(text: str, style: str, screen: Screen) -> str:
    return f"\033[{style}m{text}\033[0m" if style and screen.styled else text


def render_svg(text: str, title: str) -> str:
    """Render text with colours, which was made for `SVG_SCREEN`, as an SVG picture in ASCII.

    It is one file without scripts, and without fonts from the network.
    """
    from rich.console import Console  # noqa: PLC0415 - door: rich
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Text.from_ansi(_ILLEGAL.sub("\ufffd", text.replace("\x1b", "\ue000")).replace("\ue000", "\x1b"))
    longest = max(map(count_columns, shown.plain.split("\n")))
    console = Console(record=True, file=io.StringIO(), width=min(longest, SVG_SCREEN.width))
    console.print(shown)
    picture = console.export_svg(theme=DEFAULT_TERMINAL_THEME, code_format=_TEMPLATE)
    picture = picture.replace("<style>", f"<title>{escape(clean_lines(title))}</title>\n<style>", 1)
    return picture.encode("ascii", "xmlcharrefreplace").decode()
