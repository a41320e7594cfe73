"""A machine for people (a tree) and for programs (JSON, schema ompbind-topo/1)."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from ompbind.cpuset import CpuSet, count, union
from ompbind.report.text import WIDTH, render_bytes, render_paragraph, wrap_indented
from ompbind.topology import Domain, Level, Machine, Node, index_by_cpu, touched

SHOWN_EACH = 16
"""Domains of the same shape beside each other that are still shown one by one."""

_NAMES = {Level.NODE: "NUMA node", Level.L2: "L2", Level.L3: "L3"}


def render_summary(machine: Machine) -> str:
    """Say in one line what machine it is: "x86_64, 16 CPUs, 8 cores, 2 packages, 2 NUMA nodes"."""
    parts = [machine.arch, count(len(machine.online), "CPU"), count(len(machine.at(Level.CORE)), "core")]
    for level in (Level.PACKAGE, Level.NODE):
        if machine.at(level):
            parts.append(count(len(machine.at(level)), _name(level)))
    return ", ".join(parts)


def render_limits(machine: Machine) -> Iterator[str]:
    """Yield a line for each limit of what can be used: CPUs allowed, CPUs offline, CPU time."""
    if machine.allowed != machine.online:
        yield f"allowed: {count(len(machine.allowed), 'CPU')} ({machine.allowed})"
    if machine.offline:
        yield f"offline: {machine.offline}"
    if machine.quota is not None:
        yield f"CPU time: {machine.quota:g} CPUs (cgroup quota)"


def render_tree(machine: Machine) -> str:
    """Render the machine as an indented tree, domains of the same extent on one line."""
    lines = [f"{machine.source}: {render_summary(machine)}", *render_limits(machine)]
    lines.extend(f"  {line}" for line in _branches(machine, machine.online, _telling_levels(machine)))
    lines.extend(f"  {line}" for line in _distant_nodes(machine))
    notes = [render_paragraph("note", remark) for remark in machine.remarks]
    return "\n".join([*map(wrap_indented, lines), *notes])


def _telling_levels(machine: Machine) -> list[Level]:
    """Return the levels worth a line: those whose domains are more than a core each."""
    cores = {core.cpus for core in machine.at(Level.CORE)}
    return [
        level
        for level in machine.levels
        if level is Level.CORE or {domain.cpus for domain in machine.at(level)} != cores
    ]


def _distant_nodes(machine: Machine) -> Iterator[str]:
    for node in machine.nodes:
        if not node.cpus:
            yield ", ".join(render_distant(node))


def render_distant(node: Node) -> Iterator[str]:
    """Yield what is to say of a node without CPUs: its memory, and which nodes are the nearest to it."""
    yield f"NUMA node {node.number} ({render_bytes(node.memory_bytes)})"
    yield "no CPUs"
    if node.nearest:
        yield f"nearest to node {CpuSet(node.nearest)}"


def _branches(machine: Machine, inside: CpuSet, levels: Sequence[Level]) -> list[str]:
    """Return the lines of what is inside a set of CPUs, level after level."""
    domains = touched(machine.at(levels[0]), inside)
    if levels[0] is Level.CORE:
        return list(_core_lines(machine, domains))
    lines: list[str] = []
    for same in _alike(machine, domains, levels[1:]):
        lines.extend(_branch(machine, same, levels))
    rest = inside - union(domain.cpus for domain in domains)
    return [*lines, *_branches(machine, rest, levels[1:])] if rest else lines


def _branch(machine: Machine, same: Sequence[Domain], levels: Sequence[Level]) -> Iterator[str]:
    """Yield the lines of a run of domains alike: each one, or the first for all when they are many."""
    for domain in same if len(same) <= SHOWN_EACH else same[:1]:
        rest, title = _merge(machine, domain, levels)
        if len(same) > SHOWN_EACH:
            title = f"{len(same)} × {_name(domain.level)}, each like the first: {title}"
        inner = _branches(machine, domain.cpus, rest)
        if len(inner) == 1 and len(title) + len(inner[0]) < WIDTH - 12:
            yield f"{title}: {inner[0]}"
        else:
            yield title
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


def render_title(machine: Machine, domain: Domain) -> str:
    """Name a domain, a NUMA node with its memory: "L3 0", "NUMA node 1 (30.9 GiB)"."""
    if domain.level is Level.NODE:
        node = next((node for node in machine.nodes if node.number == domain.os_id), None)
        if node and node.memory_bytes is not None:
            return f"{render_domain(domain)} ({render_bytes(node.memory_bytes)})"
    return render_domain(domain)


def render_domain(domain: Domain) -> str:
    """Name a domain by its logical number, a NUMA node by the one of the OS: "package 0", "NUMA node 8"."""
    return f"{_name(domain.level)} {domain.os_id if domain.level is Level.NODE else domain.index}"


def _alike(machine: Machine, domains: Sequence[Domain], levels: Sequence[Level]) -> Iterator[list[Domain]]:
    """Group neighbouring domains that look the same inside."""
    cores = {core.index: len(core.cpus) for core in machine.at(Level.CORE)}
    core_of = index_by_cpu(machine.at(Level.CORE))

    def shape(domain: Domain) -> tuple[object, ...]:
        inner = sorted({core_of[cpu] for cpu in domain.cpus})
        below = (len(touched(machine.at(level), domain.cpus)) for level in levels if level is not Level.CORE)
        return (tuple(cores[index] for index in inner), *below)

    for _, run in groupby(domains, key=shape):
        yield list(run)


def _core_lines(machine: Machine, cores: Sequence[Domain]) -> Iterator[str]:
    """Yield one line for each run of cores with the same number of CPUs, allowed or not."""
    for (width, allowed), run in groupby(
        cores, key=lambda core: (len(core.cpus), core.cpus <= machine.allowed)
    ):
        same = list(run)
        cpus = CpuSet(cpu for core in same for cpu in core.cpus)
        many = f"{len(same)} × core" if len(same) > 1 else "core"
        kept = cpus & machine.allowed
        limit = "" if allowed else f", allowed {kept}" if kept else ", not allowed"
        yield f"{many} ({count(width, 'CPU')}): {cpus}{limit}"


def _name(level: Level) -> str:
    return _NAMES.get(level, str(level))


def render_json(machine: Machine) -> str:
    """Render the machine as JSON, schema ompbind-topo/1."""
    return json.dumps(machine_record(machine), indent=2)


def machine_record(machine: Machine) -> dict[str, object]:
    """Return the JSON value of a machine: sets as list text, logical numbers, memory in bytes."""
    return {
        "schema": "ompbind-topo/1",
        "source": machine.source,
        "arch": machine.arch,
        "online": str(machine.online),
        "allowed": str(machine.allowed),
        "offline": str(machine.offline),
        "isolated": str(machine.isolated),
        "nohz_full": str(machine.nohz_full),
        "quota_cpus": machine.quota,
        "cpus": list(_cpu_records(machine)),
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
            {"kind": kind.name, "cpus": str(kind.cpus), "strength": kind.strength, "told_by": kind.told_by}
            for kind in machine.kinds
        ],
        "os_ids": [
            {"level": domain.level, "index": domain.index, "os_id": domain.os_id}
            for domain in machine.domains
            if domain.os_id is not None and domain.level is not Level.NODE
        ],
        "bindable": machine.bindable,
        "remarks": list(machine.remarks),
    }


def _cpu_records(machine: Machine) -> Iterator[dict[str, object]]:
    columns = {str(level): index_by_cpu(machine.at(level)) for level in Level if level is not Level.NODE}
    node_of = {cpu: node.number for node in machine.nodes for cpu in node.cpus}
    kind_of = {cpu: kind.name for kind in machine.kinds for cpu in kind.cpus}
    for cpu in machine.online:
        yield {
            "cpu": cpu,
            **{name: column.get(cpu) for name, column in columns.items()},
            "node": node_of.get(cpu),
            "kind": kind_of.get(cpu),
            "allowed": cpu in machine.allowed,
        }
