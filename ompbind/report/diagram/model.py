"""A machine as a tree of boxes: what a picture shows and says, but no sizes and positions yet.

A picture is made in three steps, and this module is the first:

    machine, plan ──▶ boxes ──▶ sizes and positions ──▶ text
                      model     svg or terminal         svg or terminal

A box holds the boxes of what is inside it: a package its NUMA nodes, a core its CPUs. Domains of the same
CPUs are one box with a joined title. Every online CPU is in exactly one box: a domain that overlaps others
only partially is drawn in parts, and the title of each part says so.

    machine
    ├── lines: the heading
    ├── group: package 0, package 1, ...           NUMA nodes, caches, cores and CPUs inside each other
    ├── group: memory that is near to no CPU or equally near to all, and devices whose place is not known
    └── group: the legend
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.machine.devices import Device
from ompbind.machine.model import Domain, Level, Machine
from ompbind.record import Record
from ompbind.report.diagram.plan_overlay import NO_ANNOTATION, NOTHING, Overlay
from ompbind.report.machine_text import (
    render_cpuless_node,
    render_device_lines,
    render_limits,
    render_summary,
    render_title,
)
from ompbind.report.text import wrap_indented

_WIDE = {str(level) for level in (Level.DRAWER, Level.BOOK, Level.PACKAGE, Level.NODE, Level.DIE)}
"""Levels whose boxes stand in rows over the whole width of the picture."""

_HOLD_DEVICES = {"group", *_WIDE - {str(Level.DIE)}}
"""Styles of boxes that show their devices. Dies and caches with devices only would take more space."""

DeviceText = Callable[[Sequence[Device], CpuSet], Iterable[str]]
"""Returns the lines of text about the devices in a box with some CPUs."""

Arrangement = Literal["square", "wide", "fill", "column"]
"""How the boxes inside a box are arranged: near-square; in rows of the largest width that is allowed; in rows
as wide as the rest of the picture; or one below the other."""


class Box(Record):
    """One box: what it shows, the parts of its title, and the boxes inside it.

    `style` says what it shows and is a class in SVG: a level, "cpu", "memory" for a node without CPUs,
    "devices", "key" in the legend, "line" for text alone, "group" and "lines" for boxes without a frame,
    "machine" for the whole picture. `marks` are further classes that distinguish it from others of its style.
    `label` is a line below the title: what the CPU is used for. `min_characters` is the least width of its
    text. Once the box has a size, `title` has one item per line. `x` and `y` are relative to the surrounding
    box until the layout is finished. Sizes are in pixels.
    """

    style: str
    title: tuple[str, ...] = ()
    label: str = ""
    marks: tuple[str, ...] = ()
    tooltip: str = ""
    cpus: CpuSet = EMPTY
    arrangement: Arrangement = "square"
    min_characters: int = 0
    inside: tuple["Box", ...] = ()
    width: int = 0
    height: int = 0
    x: int = 0
    y: int = 0


def make_boxes(machine: Machine, overlay: Overlay = NOTHING) -> Box:
    """Return the tree of boxes of a machine, without sizes: heading, domains, distant memory, legend."""
    cores = make_cores(machine, overlay)
    body = make_body(machine, cores, framed_levels(machine), render_device_lines)
    lines = [*(overlay.heading or (machine.source, render_summary(machine))), *render_limits(machine)]
    notes = overlay.notes if overlay.heading else [f"note: {remark}" for remark in machine.remarks]
    texts = "\n".join(map(wrap_indented, [*lines, *notes])).split("\n")
    inside = (Box(style="line", title=(text.strip(),)) for text in texts)
    parts = (
        Box(style="lines", arrangement="column", inside=tuple(inside)),
        *body,
        _legend(cores, machine, overlay),
    )
    return Box(style="machine", arrangement="column", inside=tuple(part for part in parts if part.inside))


def make_body(
    machine: Machine, cores: Sequence[Box], levels: Sequence[Level], render_devices: DeviceText
) -> tuple[Box, Box]:
    """Return cores in the boxes of some levels, and memory and devices in none of them, without sizes."""
    outer = _nested(machine, cores, machine.online, levels)
    arrangement = _outer_arrangement(outer)
    body = Box(style="group", cpus=machine.online, arrangement=arrangement, inside=tuple(outer))
    unattached: list[Box] = []
    for node in reversed(machine.nodes):
        if node.cpus:
            continue
        memory = Box(style="memory", title=tuple(render_cpuless_node(node)))
        near = union(other.cpus for other in machine.nodes if other.number in node.nearest) & machine.online
        if near and near != machine.online:
            body = _add_memory(body, near, memory)
        else:
            unattached.insert(0, memory)
    body = _add_devices(body, [device for device in machine.devices if device.cpus], render_devices)
    unknown = [device for device in machine.devices if not device.cpus]
    if unknown:
        unattached.append(Box(style="devices", title=tuple(render_devices(unknown, EMPTY))))
    return body, Box(style="group", arrangement="wide", inside=tuple(unattached))


def framed_levels(machine: Machine) -> list[Level]:
    """Return the levels that get frames, widest first: nodes, and levels with a domain of several cores."""
    return [
        level
        for level in machine.levels
        if level is Level.NODE
        or (
            level is not Level.CORE
            and any(len(machine.table.rows(domain.cpus)) > 1 for domain in machine.at(level))
        )
    ]


def _nested(machine: Machine, cores: Sequence[Box], inside: CpuSet, levels: Sequence[Level]) -> list[Box]:
    """Return the boxes inside a set of CPUs, level by level; each CPU is in exactly one of them."""
    boxes, rest = [], inside
    if not levels:
        for core in cores:
            if core.cpus.isdisjoint(inside):
                continue
            if not core.cpus <= inside:  # its other CPUs belong to another box
                cells = tuple(cell for cell in core.inside if cell.cpus <= inside)
                core = core.replace(cpus=core.cpus & inside, inside=cells)
            boxes.append(core)
        return boxes
    for domain, cpus in _split_among(machine.at(levels[0]), inside):
        boxes.append(_framed(machine, domain, cpus, _nested(machine, cores, cpus, levels[1:])))
        rest -= cpus
    return [*boxes, *_nested(machine, cores, rest, levels[1:])] if rest else boxes


def _split_among(domains: Iterable[Domain], cpus: CpuSet) -> Iterator[tuple[Domain, CpuSet]]:
    """Yield domains with their part of some CPUs; a CPU of overlapping domains goes to the first of them."""
    for domain in domains:
        if part := domain.cpus & cpus:
            yield domain, part
            cpus -= part


def _framed(machine: Machine, domain: Domain, cpus: CpuSet, inner: Sequence[Box]) -> Box:
    """Return the box of a domain or a part of it; a single box with the same CPUs is joined with it."""
    title = ("" if cpus == domain.cpus else "part of ") + render_title(machine, domain)
    if len(inner) == 1 and inner[0].style != Level.CORE:
        (only,) = inner
        return only.replace(
            style=str(domain.level), title=(title, *only.title), tooltip=f"{title}, {only.tooltip}"
        )
    return Box(
        style=str(domain.level),
        title=(title,),
        tooltip=f"{title}: {named('CPU', cpus)}",
        cpus=cpus,
        arrangement=_outer_arrangement(inner) if cpus == machine.online else "square",
        inside=tuple(inner),
    )


def _outer_arrangement(inner: Sequence[Box]) -> Arrangement:
    """Return the arrangement of the outermost boxes."""
    return "wide" if inner and inner[0].style in _WIDE else "square"


def make_cores(machine: Machine, overlay: Overlay) -> tuple[Box, ...]:
    """Return the box of every core in the order of the machine, with its CPUs, without sizes."""
    cells = {cell.cpus.first: cell for cell in _cpu_boxes(machine, overlay)}
    kinds = kind_marks(machine)
    return tuple(
        Box(
            style="core",
            marks=tuple(mark for mark, (kind_cpus, _) in kinds.items() if cpus.first in kind_cpus),
            tooltip=(
                f"{core.title}: {overlay.cores[cpus.first].words}" if cpus.first in overlay.cores else ""
            ),
            cpus=cpus,
            inside=tuple(cells[cpu] for cpu in cpus),
        )
        for core, cpus in _split_among(machine.at(Level.CORE), machine.online)
    )


def kind_marks(machine: Machine) -> dict[str, tuple[CpuSet, str]]:
    """Map the mark of each core kind to its CPUs and its name; equal names get the strength added."""
    names = [kind.name for kind in machine.kinds]
    marks = {}
    for i, kind in enumerate(machine.kinds):
        strength = f" (strength {kind.strength})" if names.count(kind.name) > 1 else ""
        marks[f"{kind.name}-{names[:i].count(kind.name)}"] = (kind.cpus, f"{kind.name} core{strength}")
    return marks


def _cpu_marks(machine: Machine) -> dict[str, tuple[CpuSet, str]]:
    """Map each mark of CPUs to the CPUs that have it, and to its words in the legend."""
    reasons = _exclusion_reasons(machine)
    names = ", ".join(name for _, name in reasons)
    return {
        "apart": (union(cpus for cpus, _ in reasons), f"excluded by default ({names})"),
        "not-allowed": (machine.online - machine.allowed, "not allowed"),
    }


def _exclusion_reasons(machine: Machine) -> list[tuple[CpuSet, str]]:
    return [(found, name) for name, cpus in machine.exclusion_reasons if (found := cpus & machine.online)]


def _cpu_boxes(machine: Machine, overlay: Overlay) -> Iterator[Box]:
    marks = _cpu_marks(machine)
    properties = [*kind_marks(machine).values(), *_exclusion_reasons(machine), marks["not-allowed"]]
    domain_names: dict[int, list[str]] = {cpu: [] for cpu in machine.online}  # narrowest first
    for level in reversed(machine.levels):
        for domain in machine.at(level):
            title = domain.title
            for cpu in domain.cpus & machine.online:
                domain_names[cpu].append(title)
    symbols = (annotation.symbol for annotation in overlay.cpus.values())
    min_characters = max(len(str(max(machine.online))), *map(len, symbols), 0)
    for cpu in machine.online:
        annotation = overlay.cpus.get(cpu, NO_ANNOTATION)
        words = (words for cpus, words in properties if cpu in cpus)
        tooltip = (f"CPU {cpu}", annotation.words, *domain_names[cpu], *words)
        own_marks = (mark for mark, (cpus, _) in marks.items() if cpu in cpus)
        yield Box(
            style="cpu",
            title=(str(cpu),),
            label=annotation.symbol,
            marks=tuple(dict.fromkeys(filter(None, (*own_marks, annotation.mark)))),
            tooltip=", ".join(filter(None, tooltip)),
            cpus=CpuSet((cpu,)),
            min_characters=min_characters,
        )


def _add_memory(box: Box, near: CpuSet, memory: Box) -> Box:
    """Put memory below the smallest box that has all the CPUs it is nearest to."""
    for i, inner in enumerate(box.inside):
        if near <= inner.cpus and inner.style != Level.CORE:
            changed = _add_memory(inner, near, memory)
            return box.replace(inside=(*box.inside[:i], changed, *box.inside[i + 1 :]))
    return Box(style="group", cpus=box.cpus, arrangement="column", inside=(box, memory))


def _add_devices(box: Box, devices: Sequence[Device], render_devices: DeviceText) -> Box:
    """Put devices below the content of the smallest package, node or other wide box around their CPUs."""
    if not devices:
        return box
    inside, rest = [], devices
    for inner in box.inside:
        cpus = inner.cpus if inner.style in _HOLD_DEVICES else EMPTY
        own = [device for device in rest if device.cpus <= cpus]
        rest = [device for device in rest if not device.cpus <= cpus]
        inside.append(_add_devices(inner, own, render_devices))
    if not rest:
        return box.replace(inside=tuple(inside))
    content = Box(style="group", cpus=box.cpus, arrangement=box.arrangement, inside=tuple(inside))
    shown = Box(style="devices", title=tuple(render_devices(rest, box.cpus)))
    return box.replace(arrangement="column", inside=(content, shown))


def _legend(cores: Sequence[Box], machine: Machine, overlay: Overlay) -> Box:
    """Return the legend: an entry for each look that occurs, drawn with that look."""
    keys: list[tuple[tuple[str, ...], str]] = []
    if any(not core.marks for core in cores):
        use = " and their use" if overlay.cpus else ""
        keys.append((("core",), f"core, with its CPU numbers{use}"))
    for mark, (cpus, words) in kind_marks(machine).items():
        if cpus & machine.online:
            keys.append((("core", mark), words))
    annotations = (*overlay.ranks, *overlay.cpu_keys)
    for annotation in annotations:
        words = " = ".join(filter(None, (annotation.symbol, annotation.words)))
        keys.append((("cpu", annotation.mark), words))
    explained = {annotation.mark for annotation in annotations}
    for mark, (cpus, words) in _cpu_marks(machine).items():
        if cpus and mark not in explained:
            keys.append((("cpu", mark), f"CPU {words}"))
    entries = (Box(style="key", marks=marks, title=(words,)) for marks, words in keys)
    return Box(style="group", arrangement="fill", inside=tuple(entries))
