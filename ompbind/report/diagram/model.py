"""A machine as a tree of boxes: what is to be drawn, and what it says, but not yet where.

A box holds the boxes of what is inside it: a package its nodes, a core its CPUs. Domains of the same CPUs
are one box with a joined title, and every online CPU is in exactly one box, even where domains overlap.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.machine.model import Domain, Level, Machine, Node, touched
from ompbind.record import Record
from ompbind.report.diagram.plan_overlay import NO_STAMP, NOTHING, Overlay
from ompbind.report.text import wrap_indented
from ompbind.report.topology_json import render_distant, render_limits, render_summary, render_title

_WIDE = {str(level) for level in (Level.DRAWER, Level.BOOK, Level.PACKAGE, Level.NODE, Level.DIE)}

Flow = Literal["square", "wide", "rest", "column"]
"""How the boxes inside flow: near-square, in rows as wide as there is room or as what else is there is, or
one below the other."""


class Box(Record):
    """One box: how it looks, its title by parts (once it has a size: by lines), and the boxes inside it.

    `style` is what it shows: a level, "cpu", "memory" for a node without CPUs, "key" in the legend, "line"
    for text alone, "group" and "lines" for what has no frame, "machine" for all. `label` is a further line of
    its title that tells more than the title does. `marks` distinguish it from others of its style; `letters`
    is for how many characters it has room at least. `x` and `y` are relative to the box around it until the
    layout is done.
    """

    style: str
    title: tuple[str, ...] = ()
    label: str = ""
    marks: tuple[str, ...] = ()
    tip: str = ""
    cpus: CpuSet = EMPTY
    flow: Flow = "square"
    letters: int = 0
    inside: tuple["Box", ...] = ()
    width: int = 0
    height: int = 0
    x: int = 0
    y: int = 0


def make_boxes(machine: Machine, overlay: Overlay = NOTHING) -> Box:
    """Return the tree of boxes of a machine, without sizes: head, domains, memory apart, legend."""
    cores = make_cores(machine, overlay)
    body = make_body(machine, cores, framed_levels(machine))
    parts = (_head(machine, overlay), *body, _legend(cores, machine, overlay))
    return Box(style="machine", flow="column", inside=tuple(part for part in parts if part.inside))


def make_body(machine: Machine, cores: Sequence[Box], levels: Sequence[Level]) -> tuple[Box, Box]:
    """Return cores in the boxes of some levels, and memory that is near to none of them, without sizes."""
    body: Box = _group(_nested(machine, cores, machine.online, levels), machine.online)
    excluded_by_default: list[Box] = []
    for node in reversed(machine.nodes):
        if not node.cpus:
            memory = Box(style="memory", title=tuple(render_distant(node)))
            near = _near(machine, node)
            body, excluded_by_default = (
                (_beside(body, near, memory), excluded_by_default)
                if near
                else (body, [memory, *excluded_by_default])
            )
    return body, _group(excluded_by_default)


def _group(boxes: Iterable[Box], cpus: CpuSet = EMPTY) -> Box:
    inside = tuple(boxes)
    return Box(style="group", cpus=cpus, flow=_trunk_flow(inside) if cpus else "wide", inside=inside)


def _head(machine: Machine, overlay: Overlay) -> Box:
    lines = [*(overlay.head or (machine.source, render_summary(machine))), *render_limits(machine)]
    notes = overlay.notes if overlay.head else [f"note: {remark}" for remark in machine.remarks]
    texts = "\n".join(map(wrap_indented, [*lines, *notes])).split("\n")
    inside = (Box(style="line", title=(text.strip(),)) for text in texts)
    return Box(style="lines", flow="column", inside=tuple(inside))


def framed_levels(machine: Machine) -> list[Level]:
    """Return the levels that get frames, widest first: nodes, and those with a domain of several cores."""
    cores = machine.at(Level.CORE)
    return [
        level
        for level in machine.levels
        if level is Level.NODE
        or (level is not Level.CORE and any(len(touched(cores, one.cpus)) > 1 for one in machine.at(level)))
    ]


def _nested(machine: Machine, cores: Sequence[Box], inside: CpuSet, levels: Sequence[Level]) -> list[Box]:
    """Return the boxes of what is inside a set of CPUs, each CPU in exactly one of them."""
    if not levels:
        return [_part(core, inside) for core in cores if not core.cpus.isdisjoint(inside)]
    boxes, rest = [], inside
    for domain, cpus in _shares(machine.at(levels[0]), inside):
        boxes.append(_framed(machine, domain, cpus, _nested(machine, cores, cpus, levels[1:])))
        rest -= cpus
    return [*boxes, *_nested(machine, cores, rest, levels[1:])] if rest else boxes


def _shares(domains: Iterable[Domain], cpus: CpuSet) -> Iterator[tuple[Domain, CpuSet]]:
    """Share CPUs out among domains that may overlap: each CPU to the first that has it."""
    for domain in domains:
        if share := domain.cpus & cpus:
            yield domain, share
            cpus -= share


def _framed(machine: Machine, domain: Domain, cpus: CpuSet, inner: Sequence[Box]) -> Box:
    """Return the box of a domain, or of a part of it, joined with the one inside it if that is as large."""
    title = ("" if cpus == domain.cpus else "part of ") + render_title(machine, domain)
    if len(inner) == 1 and inner[0].style != Level.CORE:
        only = inner[0]
        return only.replace(style=str(domain.level), title=(title, *only.title), tip=f"{title}, {only.tip}")
    flow = _trunk_flow(inner) if cpus == machine.online else "square"
    tip = f"{title}: CPUs {cpus}"
    return Box(style=str(domain.level), title=(title,), tip=tip, cpus=cpus, flow=flow, inside=tuple(inner))


def _trunk_flow(inner: Sequence[Box]) -> Flow:
    return "wide" if inner and inner[0].style in _WIDE else "square"


def _part(core: Box, cpus: CpuSet) -> Box:
    if core.cpus <= cpus:
        return core
    inside = tuple(cell for cell in core.inside if cell.cpus <= cpus)
    return core.replace(cpus=core.cpus & cpus, inside=inside)


def make_cores(machine: Machine, overlay: Overlay) -> tuple[Box, ...]:
    """Return the box of every core in the order of the machine, with its CPUs, without sizes."""
    cells = {cell.cpus.first: cell for cell in _cpu_boxes(machine, overlay)}
    kinds = kind_marks(machine)
    return tuple(
        Box(
            style="core",
            marks=tuple(mark for mark, (cpus, _) in kinds.items() if share.first in cpus),
            tip=f"{core.title}: {overlay.cores[share.first].words}" if share.first in overlay.cores else "",
            cpus=share,
            inside=tuple(cells[cpu] for cpu in share),
        )
        for core, share in _shares(machine.at(Level.CORE), machine.online)
    )


def kind_marks(machine: Machine) -> dict[str, tuple[CpuSet, str]]:
    """Map the mark of each core kind to its CPUs and its name, with its strength if others have the name."""
    names = [kind.name for kind in machine.kinds]
    marks = {}
    for i, kind in enumerate(machine.kinds):
        strength = f" (strength {kind.strength})" if names.count(kind.name) > 1 else ""
        marks[f"{kind.name}-{names[:i].count(kind.name)}"] = (kind.cpus, f"{kind.name} core{strength}")
    return marks


def _cpu_marks(machine: Machine) -> dict[str, tuple[CpuSet, str]]:
    """Map the marks of CPUs to those that have them, and to their words."""
    excluded_by_default = _exclusion_reasons(machine)
    reasons = ", ".join(words for _, words in excluded_by_default)
    return {
        "apart": (union(cpus for cpus, _ in excluded_by_default), f"set apart ({reasons})"),
        "not-allowed": (machine.online - machine.allowed, "not allowed"),
    }


def _exclusion_reasons(machine: Machine) -> list[tuple[CpuSet, str]]:
    return [(found, words) for words, cpus in machine.exclusion_reasons if (found := cpus & machine.online)]


def _cpu_boxes(machine: Machine, overlay: Overlay) -> Iterator[Box]:
    marks = _cpu_marks(machine)
    told = [*kind_marks(machine).values(), *_exclusion_reasons(machine), marks["not-allowed"]]
    where = _where(machine)
    letters = max(len(str(max(machine.online))), *(len(stamp.sign) for stamp in overlay.cpus.values()), 0)
    for cpu in machine.online:
        stamp = overlay.cpus.get(cpu, NO_STAMP)
        words = (words for cpus, words in told if cpu in cpus)
        tip = (f"CPU {cpu}", stamp.words, *where.get(cpu, ()), *words)
        own = (mark for mark, (cpus, _) in marks.items() if cpu in cpus)
        yield Box(
            style="cpu",
            title=(str(cpu),),
            label=stamp.sign,
            marks=tuple(dict.fromkeys(filter(None, (*own, stamp.mark)))),
            tip=", ".join(filter(None, tip)),
            cpus=CpuSet((cpu,)),
            letters=letters,
        )


def _where(machine: Machine) -> Mapping[int, Sequence[str]]:
    """Map every CPU to the names of its domains, narrowest first."""
    where: dict[int, list[str]] = {}
    levels = machine.levels
    for domain in sorted(machine.domains, key=lambda one: -levels.index(one.level)):
        name = domain.title
        for cpu in domain.cpus:
            where.setdefault(cpu, []).append(name)
    return where


def _near(machine: Machine, node: Node) -> CpuSet:
    """Return the CPUs that a node without CPUs is nearest to; none when it is as near to all."""
    near = union(one.cpus for one in machine.nodes if one.number in node.nearest) & machine.online
    return near if near != machine.online else EMPTY


def _beside(box: Box, near: CpuSet, memory: Box) -> Box:
    """Put memory below the smallest box that has all the CPUs it is nearest to."""
    for i, inner in enumerate(box.inside):
        if near <= inner.cpus and inner.style != Level.CORE:
            return box.replace(inside=(*box.inside[:i], _beside(inner, near, memory), *box.inside[i + 1 :]))
    return Box(style="group", cpus=box.cpus, flow="column", inside=(box, memory))


def _legend(cores: Sequence[Box], machine: Machine, overlay: Overlay) -> Box:
    """Return the key of what occurs, each entry drawn as what it tells of."""
    keys: list[tuple[tuple[str, ...], str]] = []
    if any(not core.marks for core in cores):
        purpose = " and what they are for" if overlay.cpus else ""
        keys.append((("core",), f"core, with its CPUs by number{purpose}"))
    kinds = kind_marks(machine).items()
    keys += [(("core", mark), words) for mark, (cpus, words) in kinds if cpus & machine.online]
    stamps = (*overlay.ranks, *overlay.cpu_keys)
    keys += [(("cpu", one.mark), " = ".join(filter(None, (one.sign, one.words)))) for one in stamps]
    told = {one.mark for one in stamps}
    others = _cpu_marks(machine).items()
    keys += [(("cpu", mark), f"CPU {words}") for mark, (cpus, words) in others if cpus and mark not in told]
    return _group(Box(style="key", marks=marks, title=(words,)) for marks, words in keys).replace(flow="rest")
