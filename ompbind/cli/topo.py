"""`ompbind topo`: show the machine, as a tree, a table, a picture or JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.option import VerbContext
from ompbind.cli.verb import Verb, make_format_option
from ompbind.cpuset import CpuSet, count, union
from ompbind.machine.core_kinds import kind_by_cpu
from ompbind.machine.devices import Device
from ompbind.machine.model import Domain, Level, Machine, Node
from ompbind.machine.read import read_machine
from ompbind.record import Record
from ompbind.report import topology
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

EXAMPLES = (
    ("This machine", "ompbind topo"),
    ("A line for each CPU and each device", "ompbind topo --format table"),
    ("A picture of another machine", "ompbind topo --topology sample:epyc-2p --format svg"),
    ("A model of a server with 384 CPUs", "ompbind topo --topology sample:epyc-2p"),
    ("A machine that is only described",
     "ompbind topo --topology 'synthetic:pack:2 numa:2 l3:4 core:8 pu:2'"),
)  # fmt: skip

_FORMATS = "; table: a line for each CPU and device, svg: a picture for browsers"
OPTIONS = (make_format_option("topo", "tree", "table", "json", "svg", detail=_FORMATS),)


def topo(ctx: VerbContext) -> int:
    """Show the machine: its packages, NUMA nodes, caches and cores, its GPUs and NICs, and which CPUs are
    allowed.
    """
    machine, chosen = read_machine(ctx.params["topology"], devices=True), ctx.params["format"]
    if chosen == "json":
        text = render_json(machine)
    elif chosen == "svg":
        from ompbind.report.picture import render_machine_svg  # noqa: PLC0415 - door: pictures

        text = render_machine_svg(machine)
    else:
        text = (render_listing if chosen == "table" else render_tree)(machine, read_screen())
    write_stdout(text)
    return 0


LINES = 40  # of a tree; a longer tree only counts inner levels; so many fit on a usual terminal
NODES = 8  # NUMA nodes up to which all distances are shown; more nodes have only a range

_NOT_ALLOWED = ", not allowed"


class _View(Record):
    """What a tree shows of a machine; `counted` levels have no lines, only their number."""

    machine: Machine
    screen: Screen
    kind_of: Mapping[int, str]
    counted: Sequence[Level] = ()


def render_tree(machine: Machine, screen: Screen = PIPE) -> str:
    """Render the machine as an indented tree, from the widest level to the cores.

    Domains of the same CPUs share a line, and a domain whose only content is one line of cores shares it too.
    If the tree is longer than LINES, inner levels are only counted, the innermost first. Devices are below
    the narrowest domain with all CPUs that they are near; their lines do not count, so many devices never
    hide CPUs. A terminal with colours shows what is not allowed dimmed.
    """
    width = screen.text_width
    lines = [f"{clean_lines(machine.source)}: {topology.render_summary(machine)}"]
    lines += [*topology.render_limits(machine), *topology.render_caches(machine)]
    lines += [f"  {line}" for line in _list_domains(machine, screen)]
    cpuless = (topology.render_cpuless_node(node) for node in machine.nodes if not node.cpus)
    lines += [f"  {', '.join(parts)}" for parts in cpuless]
    wrapped = ((line, wrap_indented(line, width)) for line in lines)
    shown = (dim(text) if screen.styled and line.endswith(_NOT_ALLOWED) else text for line, text in wrapped)
    notes = (render_paragraph("note", remark, width) for remark in machine.remarks)
    return "\n".join([*shown, *_distances(machine.nodes), *notes])


def _list_domains(machine: Machine, screen: Screen) -> list[str]:
    """Return the lines of all domains and devices; of too many domains, inner levels are only counted."""
    cores = {core.cpus for core in machine.at(Level.CORE)}
    levels = [  # worth a line
        level
        for level in machine.levels
        if level in (Level.PACKAGE, Level.NODE)
        or (level is not Level.CORE and {domain.cpus for domain in machine.at(level)} != cores)
    ]
    view = _View(machine=machine, screen=screen, kind_of=kind_by_cpu(machine.kinds))
    shown = len(levels)
    while shown and len(_branches(view, machine.online, levels[:shown], ())[0]) > LINES:
        shown -= 1
        view = view.replace(counted=levels[shown:])
    lines, rest = _branches(view, machine.online, levels[:shown], machine.devices)
    return [*lines, *topology.render_device_lines(rest, machine.online)]


def _branches(
    view: _View, inside: CpuSet, levels: Sequence[Level], devices: Sequence[Device]
) -> tuple[list[str], list[Device]]:
    """Return the lines of the domains inside a set of CPUs, and the devices that are in none of them."""
    if not levels:
        return list(_core_lines(view, inside)), list(devices)
    machine, rest = view.machine, list(devices)
    domains = machine.at(levels[0], inside)
    branches = []
    for domain in domains:
        own = [device for device in rest if device.cpus and device.cpus <= domain.cpus]
        rest = [device for device in rest if device not in own]
        below, equal = list(levels[1:]), [domain]  # domains of the same CPUs
        while below:
            found = machine.at(below[0], domain.cpus)
            nested = [other for other in found if other.cpus == domain.cpus]
            if found and not nested:
                break
            equal += nested[:1]
            below.pop(0)
        title = ", ".join(topology.render_title(machine, joined) for joined in equal)
        lines, near = _branches(view, domain.cpus, below, own)
        branches.append((domain, title, lines, topology.render_device_lines(near, domain.cpus)))
    fits = all(
        len(inner) == 1 and len(title) + len(inner[0]) < view.screen.text_width - 8
        for _, title, inner, _ in branches
    )
    lines = []
    for domain, title, inner, beside in branches:
        if fits:
            lines.append(f"{title}: {inner[0]}")
        else:
            lines.append(title if domain.cpus & machine.allowed else f"{title}{_NOT_ALLOWED}")
        lines += (f"  {line}" for line in (*inner[fits:], *beside))
    if others := inside - union(domain.cpus for domain in domains):
        more, rest = _branches(view, others, levels[1:], rest)
        lines += more
    return lines, rest


def _core_lines(view: _View, inside: CpuSet) -> Iterator[str]:
    """Yield a line for each series of cores with the same number of CPUs, kind, and share of allowed CPUs."""
    machine = view.machine

    def properties(core: Domain) -> tuple[int, str | None, bool, bool]:
        allowed = core.cpus & machine.allowed
        return len(core.cpus), view.kind_of.get(core.cpus.first), bool(allowed), allowed == core.cpus

    for (smt, kind, is_some, is_all), run in groupby(machine.at(Level.CORE, inside), key=properties):
        same = list(run)
        cpus = union(core.cpus for core in same)
        counted = "".join(
            f"{len(found)} {view.screen.times} {level.label}, "
            for level in view.counted
            if (found := machine.at(level, cpus))
        )
        noun = f"{len(same)} {view.screen.times} " * (len(same) > 1) + (f"{kind} core" if kind else "core")
        limit = f", allowed {render_cpus(cpus & machine.allowed)}" if is_some else _NOT_ALLOWED
        yield f"{counted}{noun} ({count(smt, 'CPU')}): {render_cpus(cpus)}{'' if is_all else limit}"


def _distances(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the distances between NUMA nodes as a table, or their range if there are many nodes."""
    if len(nodes) < 2 or any(len(node.distances) != len(nodes) for node in nodes):
        return
    if len(nodes) > NODES:
        own = [node.distances[i] for i, node in enumerate(nodes)]
        others = [far for i, node in enumerate(nodes) for j, far in enumerate(node.distances) if i != j]
        ranges = ("-".join(dict.fromkeys((str(min(them)), str(max(them))))) for them in (own, others))
        yield "  node distances: {} to itself, {} to others".format(*ranges)
        return
    rows = [("", *(node.number for node in nodes)), *((node.number, *node.distances) for node in nodes)]
    width = max(len(str(value)) for row in rows for value in row) + 2
    yield "  node distances"
    yield from ("  " + "".join(str(value).rjust(width) for value in row) for row in rows)


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
    caches = (wrap_indented(line, screen.text_width) for line in topology.render_caches(machine))
    tables = topology.render_device_tables(machine.devices, screen) if machine.devices else ()
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
        "fast": str(machine.fast),
        "os_ids": [
            {"level": domain.level, "index": domain.index, "os_id": domain.os_id}
            for domain in machine.domains
            if domain.os_id is not None and domain.level is not Level.NODE
        ],
        "caches": [
            {"level": level, "size_bytes": size, "indexes": str(indexes)}
            for (level, size), indexes in topology.group_caches(machine).items()
        ],
        "devices": list(map(topology.device_record, machine.devices)),
        "bindable": machine.bindable,
        "remarks": list(machine.remarks),
    }
    return json.dumps(record, indent=2)


VERB = Verb(
    "topo",
    topo,
    summary="Show the machine: NUMA nodes, caches, cores, GPUs, NICs.",
    page="machines",
    examples=EXAMPLES,
)
