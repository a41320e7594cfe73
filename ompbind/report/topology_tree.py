"""A machine for people, as an indented tree that stays short on large machines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from ompbind.cpuset import CpuSet, count, union
from ompbind.machine.model import Domain, Level, Machine, Node, index_by_cpu, kind_by_cpu, touched
from ompbind.record import Record
from ompbind.report.text import WIDTH, dim, render_cpus, render_paragraph, wrap_indented
from ompbind.report.topology_json import render_distant, render_limits, render_summary, render_title
from ompbind.text import plain

SHOWN_EACH = 16  # domains of the same shape beside each other that are still shown one by one

LINES = 40
"""Lines of a tree from which on inner levels are only counted: what fits on a screen with its shell."""

NODES = 8  # nodes up to which their distances are shown one by one

_NOT_ALLOWED = ", not allowed"


class _View(Record):
    """What of a machine is shown: levels on lines of their own, and levels that are only counted.

    `core_of` and `kind_of` are the core and the kind of each CPU.
    """

    machine: Machine
    core_of: Mapping[int, int]
    kind_of: Mapping[int, str]
    levels: tuple[Level, ...] = (Level.CORE,)
    counted: tuple[Level, ...] = ()


def render_tree(machine: Machine, *, styled: bool = False) -> str:
    """Render the machine as an indented tree, domains of the same extent on one line.

    Where it would be long, inner levels are only counted. `styled` dims what is not allowed.
    """
    lines = [f"{plain(machine.source)}: {render_summary(machine)}", *render_limits(machine)]
    lines.extend(f"  {line}" for line in _body(machine))
    lines.extend(f"  {', '.join(render_distant(node))}" for node in machine.nodes if not node.cpus)
    shown = [_shade(wrap_indented(line), styled and line.endswith(_NOT_ALLOWED)) for line in lines]
    notes = [render_paragraph("note", remark) for remark in machine.remarks]
    return "\n".join([*shown, *_distances(machine.nodes), *notes])


def _shade(text: str, is_dim: bool) -> str:
    return "\n".join(map(dim, text.split("\n"))) if is_dim else text


def _body(machine: Machine) -> list[str]:
    """Return the lines of the domains; the longer they are, the more inner levels are only counted."""
    levels = _telling_levels(machine)
    view = _View(
        machine=machine, core_of=index_by_cpu(machine.at(Level.CORE)), kind_of=kind_by_cpu(machine.kinds)
    )
    lines: list[str] = []
    for keep in range(len(levels) - 1, 0, -1):
        view = view.replace(levels=(*levels[:keep], Level.CORE), counted=tuple(levels[keep:-1]))
        lines = _branches(view, machine.online, view.levels)
        if len(lines) <= LINES:
            return lines
    return lines or _branches(view, machine.online, view.levels)


def _telling_levels(machine: Machine) -> list[Level]:
    """Return the levels worth a line: nodes, packages, and those whose domains are more than a core each."""
    cores = {core.cpus for core in machine.at(Level.CORE)}
    return [
        level
        for level in machine.levels
        if level in (Level.PACKAGE, Level.NODE, Level.CORE)
        or {domain.cpus for domain in machine.at(level)} != cores
    ]


def _branches(view: _View, inside: CpuSet, levels: Sequence[Level]) -> list[str]:
    """Return the lines of what is inside a set of CPUs, level after level."""
    domains = touched(view.machine.at(levels[0]), inside)
    if levels[0] is Level.CORE:
        return list(_core_lines(view, domains))
    lines = [line for same in _alike(view, domains, levels[1:]) for line in _branch(view, same, levels)]
    rest = inside - union(domain.cpus for domain in domains)
    return [*lines, *_branches(view, rest, levels[1:])] if rest else lines


def _branch(view: _View, same: Sequence[Domain], levels: Sequence[Level]) -> Iterator[str]:
    """Yield the lines of a run of domains alike: each one, or the first for all when they are many."""
    shown: list[tuple[Domain, str, list[str]]] = []
    for domain in same if len(same) <= SHOWN_EACH else same[:1]:
        rest, title = _merge(view.machine, domain, levels)
        if len(same) > SHOWN_EACH:
            everything = render_cpus(union(one.cpus for one in same))
            title = f"{len(same)} × {domain.level.label} ({everything}), each like the first: {title}"
        shown.append((domain, title, _branches(view, domain.cpus, rest)))
    fits = all(len(inner) == 1 and len(title) + len(inner[0]) < WIDTH - 8 for _, title, inner in shown)
    for domain, title, inner in shown:
        if fits:
            yield f"{title}: {inner[0]}"
        else:
            yield title if domain.cpus & view.machine.allowed else f"{title}{_NOT_ALLOWED}"
            yield from (f"  {line}" for line in inner)


def _merge(machine: Machine, domain: Domain, levels: Sequence[Level]) -> tuple[Sequence[Level], str]:
    """Return the levels left below a domain, and its title with all domains of the same CPUs."""
    title, rest = render_title(machine, domain), list(levels[1:])
    while rest and rest[0] is not Level.CORE:
        twin = next((one for one in machine.at(rest[0]) if one.cpus == domain.cpus), None)
        if twin is None and touched(machine.at(rest[0]), domain.cpus):
            break
        if twin is not None:
            title += f", {render_title(machine, twin)}"
        rest.pop(0)
    return rest, title


def _alike(view: _View, domains: Sequence[Domain], levels: Sequence[Level]) -> Iterator[list[Domain]]:
    cores = view.machine.at(Level.CORE)
    inner_levels = [view.machine.at(level) for level in levels if level is not Level.CORE]

    def shape(domain: Domain) -> tuple[object, ...]:
        inner = sorted({view.core_of[cpu] for cpu in domain.cpus})
        below = (len(touched(inside, domain.cpus)) for inside in inner_levels)
        return (tuple(len(cores[index].cpus) for index in inner), *below)

    for _, run in groupby(domains, key=shape):
        yield list(run)


def _core_lines(view: _View, cores: Sequence[Domain]) -> Iterator[str]:
    """Yield one line for each run of cores that are alike: in CPUs, kind, and whether they are allowed."""
    machine = view.machine

    def likeness(core: Domain) -> tuple[int, str | None, bool, bool]:
        kept = core.cpus & machine.allowed
        return len(core.cpus), view.kind_of.get(core.cpus.first), bool(kept), kept == core.cpus

    for (width, kind, is_some, is_all), run in groupby(cores, key=likeness):
        same = list(run)
        cpus = union(core.cpus for core in same)
        counted = "".join(
            f"{len(found)} × {level.label}, "
            for level in view.counted
            if (found := touched(machine.at(level), cpus))
        )
        noun = f"{len(same)} × " * (len(same) > 1) + (f"{kind} core" if kind else "core")
        some = f", allowed {render_cpus(cpus & machine.allowed)}" if is_some else _NOT_ALLOWED
        yield f"{counted}{noun} ({count(width, 'CPU')}): {render_cpus(cpus)}{'' if is_all else some}"


def _distances(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the distances between nodes as a table, or their range where that would be long."""
    if len(nodes) < 2 or any(len(node.distances) != len(nodes) for node in nodes):
        return
    if len(nodes) > NODES:
        own = {node.distances[i] for i, node in enumerate(nodes)}
        others = {far for i, node in enumerate(nodes) for j, far in enumerate(node.distances) if i != j}
        yield f"  node distances: {_range(own)} to itself, {_range(others)} to others"
        return
    cell = max(len(str(value)) for node in nodes for value in (node.number, *node.distances)) + 2
    yield "  node distances"
    for title, row in (("", [node.number for node in nodes]), *((str(n.number), n.distances) for n in nodes)):
        yield "  " + title.rjust(cell) + "".join(str(value).rjust(cell) for value in row)


def _range(values: Iterable[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"
