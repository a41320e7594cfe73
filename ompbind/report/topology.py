"""A machine for people, as an indented tree that stays short on large machines.

The tree has a line per domain, from the widest level to the cores. Three rules keep it short:

- domains of the same CPUs share a line, and a domain whose only content is one line of cores shares it too;
- a long series of domains of the same shape is shown as a count and its first domain;
- if the tree is still longer than LINES, inner levels are only counted, the innermost first.

    package 0                               package 0
      NUMA node 0                             NUMA node 0: 2 × L3, 8 × core (2 CPUs): 0-15
        L3 0: 4 × core (2 CPUs): 0-7          ...
        L3 1: 4 × core (2 CPUs): 8-15

Devices are below the narrowest domain with all CPUs that they are near, with a line for each kind of device.
Their lines do not count: many devices never hide CPUs.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from ompbind.cpuset import CpuSet, count, union
from ompbind.machine.core_kinds import kind_by_cpu
from ompbind.machine.devices import Device
from ompbind.machine.model import Domain, Level, Machine, Node
from ompbind.record import Record
from ompbind.report.machine_text import (
    device_record,
    group_caches,
    render_caches,
    render_cpuless_node,
    render_device_lines,
    render_device_names,
    render_device_tables,
    render_limits,
    render_summary,
    render_title,
)
from ompbind.report.text import (
    PIPE,
    Column,
    Screen,
    dim,
    render_cpus,
    render_paragraph,
    render_rows,
    wrap_indented,
)
from ompbind.text import clean_lines

SHOWN_EACH = 16  # neighbouring domains of the same shape that are still shown one by one

LINES = 40
"""Lines of a tree; a longer tree only counts inner levels. So many fit on a usual terminal."""

NODES = 8  # NUMA nodes up to which all distances are shown; more nodes have only a range

_NOT_ALLOWED = ", not allowed"


class _View(Record):
    """What a tree shows of a machine: `levels` have lines of their own, `counted` levels only their number.

    `devices` are the devices of each domain, and of none. `core_of` and `kind_of` map each CPU to its core
    and its core kind; `width` is in characters. `times` is the character after a number of domains.
    """

    machine: Machine
    width: int
    times: str
    core_of: Mapping[int, int]
    kind_of: Mapping[int, str]
    levels: tuple[Level, ...] = (Level.CORE,)
    counted: tuple[Level, ...] = ()
    devices: Mapping[Domain | None, Sequence[Device]] = {}


def render_tree(machine: Machine, screen: Screen = PIPE) -> str:
    """Render the machine as an indented tree, domains of the same CPUs on one line.

    A long tree only counts inner levels. A terminal with colours shows what is not allowed dimmed.
    """
    width = screen.text_width
    lines = [f"{clean_lines(machine.source)}: {render_summary(machine)}", *render_limits(machine)]
    lines.extend(render_caches(machine))
    lines.extend(f"  {line}" for line in _body(machine, screen))
    lines.extend(f"  {', '.join(render_cpuless_node(node))}" for node in machine.nodes if not node.cpus)
    shown = [
        dim(text) if screen.styled and line.endswith(_NOT_ALLOWED) else text
        for line in lines
        for text in [wrap_indented(line, width)]
    ]
    notes = [render_paragraph("note", remark, width) for remark in machine.remarks]
    return "\n".join([*shown, *_distances(machine.nodes), *notes])


def _body(machine: Machine, screen: Screen) -> list[str]:
    """Return the lines of the domains; if these are too many, inner levels are only counted."""
    cores = {core.cpus for core in machine.at(Level.CORE)}
    levels = [  # worth a line
        level
        for level in machine.levels
        if level in (Level.PACKAGE, Level.NODE, Level.CORE)
        or {domain.cpus for domain in machine.at(level)} != cores
    ]
    view = _View(
        machine=machine,
        width=screen.text_width,
        times=screen.times,
        core_of=machine.table.core_of,
        kind_of=kind_by_cpu(machine.kinds),
    )
    lines: list[str] = []
    for shown in range(len(levels) - 1, 0, -1):
        view = view.replace(levels=(*levels[:shown], Level.CORE), counted=tuple(levels[shown:-1]))
        lines = _branches(view, machine.online, view.levels)
        if len(lines) <= LINES:
            break
    if not machine.devices:
        return lines or _branches(view, machine.online, view.levels)
    homes: dict[Domain | None, list[Device]] = {}  # the narrowest domain of each device
    domains = [domain for level in view.levels[:-1] for domain in machine.at(level)]
    for device in machine.devices:
        around = [domain for domain in domains if device.cpus and device.cpus <= domain.cpus]
        homes.setdefault(around[-1] if around else None, []).append(device)
    view = view.replace(devices=homes)
    beside = render_device_lines(view.devices.get(None, ()), machine.online)
    return [*_branches(view, machine.online, view.levels), *beside]


def _branches(view: _View, inside: CpuSet, levels: Sequence[Level]) -> list[str]:
    """Return the lines of the domains inside a set of CPUs, level after level."""
    domains = view.machine.at(levels[0], inside)
    if levels[0] is Level.CORE:
        return list(_core_lines(view, domains))
    series = _group_by_shape(view, domains, levels[1:])
    lines = [line for same in series for line in _branch(view, same, levels)]
    rest = inside - union(domain.cpus for domain in domains)
    return [*lines, *_branches(view, rest, levels[1:])] if rest else lines


def _branch(view: _View, same: Sequence[Domain], levels: Sequence[Level]) -> Iterator[str]:
    """Yield the lines of neighbouring domains of the same shape: of all, or of the first if they are many."""
    is_series = len(same) > SHOWN_EACH
    inner_view = view.replace(devices={}) if is_series else view
    shown: list[tuple[list[Domain], str, list[str]]] = []
    for domain in same[:1] if is_series else same:
        rest, equal = _join_equal_domains(view.machine, domain, levels)
        title = ", ".join(render_title(view.machine, joined) for joined in equal)
        if is_series:
            cpus = render_cpus(union(similar.cpus for similar in same))
            title = f"{len(same)} {view.times} {domain.level.label} ({cpus}), each like the first: {title}"
        shown.append((equal, title, _branches(inner_view, domain.cpus, rest)))
    fits = all(len(inner) == 1 and len(title) + len(inner[0]) < view.width - 8 for _, title, inner in shown)
    for equal, title, inner in shown:
        if fits:
            yield f"{title}: {inner[0]}"
        else:
            yield title if equal[0].cpus & view.machine.allowed else f"{title}{_NOT_ALLOWED}"
            yield from (f"  {line}" for line in inner)
        devices = [device for domain in equal for device in inner_view.devices.get(domain, ())]
        yield from (f"  {line}" for line in render_device_lines(devices, equal[0].cpus))
    if is_series:
        yield from _device_lines_of_series(view, same)


def _device_lines_of_series(view: _View, same: Sequence[Domain]) -> Iterator[str]:
    """Yield a line with all devices of a series of domains, which are not shown one by one."""
    homes = [home for home in view.devices if home and any(home.cpus <= domain.cpus for domain in same)]
    inside = sorted(
        (device for home in homes for device in view.devices[home]), key=view.machine.devices.index
    )
    if inside:
        yield f"  {', '.join(render_device_names(inside))} (--format table lists what they are near)"


def _join_equal_domains(
    machine: Machine, domain: Domain, levels: Sequence[Level]
) -> tuple[Sequence[Level], list[Domain]]:
    """Return the levels left below a domain, and all domains of the same CPUs that share its line."""
    equal, rest = [domain], list(levels[1:])
    while rest and rest[0] is not Level.CORE:
        nested = next((inner for inner in machine.at(rest[0]) if inner.cpus == domain.cpus), None)
        if nested is None and machine.at(rest[0], domain.cpus):
            break
        if nested is not None:
            equal.append(nested)
        rest.pop(0)
    return rest, equal


def _group_by_shape(
    view: _View, domains: Sequence[Domain], levels: Sequence[Level]
) -> Iterator[list[Domain]]:
    """Yield series of neighbouring domains with the same size, inner domains and CPUs per core."""
    cores = view.machine.at(Level.CORE)
    inner_levels = [level for level in levels if level is not Level.CORE]

    def shape(domain: Domain) -> tuple[object, ...]:
        inner = sorted({view.core_of[cpu] for cpu in domain.cpus})
        below = (len(view.machine.at(level, domain.cpus)) for level in inner_levels)
        return (domain.size_bytes, tuple(len(cores[index].cpus) for index in inner), *below)

    for _, run in groupby(domains, key=shape):
        yield list(run)


def _core_lines(view: _View, cores: Sequence[Domain]) -> Iterator[str]:
    """Yield a line for each series of cores with the same number of CPUs, kind, and share of allowed CPUs."""
    machine = view.machine

    def properties(core: Domain) -> tuple[int, str | None, bool, bool]:
        allowed = core.cpus & machine.allowed
        return len(core.cpus), view.kind_of.get(core.cpus.first), bool(allowed), allowed == core.cpus

    for (smt, kind, is_some, is_all), run in groupby(cores, key=properties):
        same = list(run)
        cpus = union(core.cpus for core in same)
        counted = "".join(
            f"{len(found)} {view.times} {level.label}, "
            for level in view.counted
            if (found := machine.at(level, cpus))
        )
        noun = f"{len(same)} {view.times} " * (len(same) > 1) + (f"{kind} core" if kind else "core")
        limit = f", allowed {render_cpus(cpus & machine.allowed)}" if is_some else _NOT_ALLOWED
        yield f"{counted}{noun} ({count(smt, 'CPU')}): {render_cpus(cpus)}{'' if is_all else limit}"


def _distances(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the distances between NUMA nodes as a table, or their range if there are many nodes."""
    if len(nodes) < 2 or any(len(node.distances) != len(nodes) for node in nodes):
        return
    if len(nodes) > NODES:
        own = {node.distances[i] for i, node in enumerate(nodes)}
        others = {
            distance for i, node in enumerate(nodes) for j, distance in enumerate(node.distances) if i != j
        }
        yield f"  node distances: {_range(own)} to itself, {_range(others)} to others"
        return
    width = max(len(str(value)) for node in nodes for value in (node.number, *node.distances)) + 2
    yield "  node distances"
    head = ("", [node.number for node in nodes])
    for title, row in (head, *((str(node.number), node.distances) for node in nodes)):
        yield "  " + title.rjust(width) + "".join(str(value).rjust(width) for value in row)


def _range(values: Iterable[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"


_COLUMNS = (Level.CORE, Level.L2, Level.CLUSTER, Level.L3, Level.DIE, Level.NODE, Level.PACKAGE, Level.BOOK,
            Level.DRAWER)  # fmt: skip
"""The levels in the order of their columns; levels that a machine does not have are left out."""


def render_listing(machine: Machine, screen: Screen = PIPE) -> str:
    """Render a table of all CPUs: the logical numbers of their domains, their kind and their state.

    NUMA nodes have the number of the OS. A terminal with colours shows CPUs that are not allowed dimmed.
    Tables of the devices and the sizes of caches follow.
    """
    cpus = list(machine.online | machine.offline)
    columns = [Column(title="CPU", cells=[str(cpu) for cpu in cpus], right=True)]
    for level in (level for level in _COLUMNS if machine.at(level)):
        numbers = {
            cpu: str(domain.os_id if level is Level.NODE else domain.index)
            for domain in machine.at(level)
            for cpu in domain.cpus
        }
        title = "node" if level is Level.NODE else level.label
        columns.append(Column(title=title, cells=[numbers.get(cpu, "-") for cpu in cpus], right=True))
    if machine.kinds:
        kinds = kind_by_cpu(machine.kinds)
        title = "kind (inferred)" if machine.kinds[0].inferred_from else "kind"
        columns.append(Column(title=title, cells=[kinds.get(cpu, "-") for cpu in cpus]))
    states = dict.fromkeys(machine.offline, "offline")
    for cpu in machine.online:
        reasons = ", ".join(name for name, excluded in machine.exclusion_reasons if cpu in excluded)
        states[cpu] = (reasons or "allowed") if cpu in machine.allowed else "not allowed"
    columns.append(Column(title="state", cells=[states[cpu] for cpu in cpus], grows=True))
    head, *rows = render_rows(columns, screen.text_width)
    is_dim = [screen.styled and cpu not in machine.allowed for cpu in cpus]
    lines = [head, *(dim(row) if dimmed else row for row, dimmed in zip(rows, is_dim, strict=True))]
    caches = (wrap_indented(line, screen.text_width) for line in render_caches(machine))
    tables = render_device_tables(machine.devices, screen) if machine.devices else ()
    return "\n\n".join(["\n".join(lines), *tables, *caches])


def render_json(machine: Machine) -> str:
    """Render the machine as JSON, schema ompbind-topo/2: CPU sets as list text, memory in bytes."""
    columns = {str(level): machine.table.number_of(level) for level in Level if level is not Level.NODE}
    node_of = {cpu: node.number for node in machine.nodes for cpu in node.cpus}
    kind_of = kind_by_cpu(machine.kinds)
    record = {
        "schema": "ompbind-topo/2",
        "source": machine.source,
        "arch": machine.arch,
        "online": str(machine.online),
        "allowed": str(machine.allowed),
        "offline": str(machine.offline),
        "isolated": str(machine.isolated),
        "nohz_full": str(machine.nohz_full),
        "quota_cpus": machine.quota,
        "memory_allowed": None if machine.memory_allowed is None else str(machine.memory_allowed),
        "cpus": [
            {
                "cpu": cpu,
                **{name: column.get(cpu) for name, column in columns.items()},
                "node": node_of.get(cpu),
                "kind": kind_of.get(cpu),
                "allowed": cpu in machine.allowed,
            }
            for cpu in machine.online
        ],
        "nodes": [
            {
                "node": node.number,
                "cpus": str(node.cpus),
                "memory_bytes": node.memory_bytes,
                "distances": list(node.distances),
                "nearest": list(node.nearest),
            }
            for node in machine.nodes
        ],
        "kinds": [
            {
                "kind": kind.name,
                "cpus": str(kind.cpus),
                "strength": kind.strength,
                "told_by": kind.source,
                "inferred": bool(kind.inferred_from),
            }
            for kind in machine.kinds
        ],
        "os_ids": [
            {"level": domain.level, "index": domain.index, "os_id": domain.os_id}
            for domain in machine.domains
            if domain.os_id is not None and domain.level is not Level.NODE
        ],
        "caches": [
            {"level": level, "size_bytes": size, "indexes": str(indexes)}
            for (level, size), indexes in group_caches(machine).items()
        ],
        "devices": list(map(device_record, machine.devices)),
        "bindable": machine.bindable,
        "remarks": list(machine.remarks),
    }
    return json.dumps(record, indent=2)
