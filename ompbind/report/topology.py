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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from ompbind.cpuset import EMPTY, CpuSet, count, named, union
from ompbind.machine.core_kinds import kind_by_cpu
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.model import Domain, Level, Machine, Node
from ompbind.masks.mask import SELECTABLE
from ompbind.record import Record
from ompbind.report.text import (
    PIPE,
    Column,
    Screen,
    dim,
    render_bytes,
    render_cpus,
    render_paragraph,
    render_rows,
    render_table,
    wrap_indented,
)
from ompbind.text import clean_lines


def render_summary(machine: Machine) -> str:
    """Return the size of a machine in one line: "x86_64, 16 CPUs, 8 cores, 2 packages, 2 NUMA nodes"."""
    parts = [count(len(machine.online), "CPU"), count(len(machine.at(Level.CORE)), "core")]
    packages, nodes = machine.at(Level.PACKAGE), machine.nodes  # nodes without CPUs are no domains
    parts += [count(len(packages), Level.PACKAGE.label)] if packages else []
    parts += [count(len(nodes), Level.NODE.label)] if nodes else []
    return ", ".join(parts if machine.arch == "unknown" else [clean_lines(machine.arch), *parts])


def render_limits(machine: Machine) -> Iterator[str]:
    """Yield a line for each limit: what is allowed, offline or excluded by default, core kinds, quota."""
    if machine.allowed != machine.online:
        yield f"allowed: {count(len(machine.allowed), 'CPU')} ({render_cpus(machine.allowed)})"
    with_memory = CpuSet(node.number for node in machine.nodes if node.memory_bytes != 0)
    if machine.memory_allowed is not None and not with_memory <= machine.memory_allowed:
        yield f"memory not allowed: {named('NUMA node', with_memory - machine.memory_allowed)}"
    if machine.offline:
        yield f"offline: {named('CPU', machine.offline)}"
    for name, cpus in machine.exclusion_reasons:
        only = " (used only if named in a mask)" if cpus & machine.excluded_by_default else ""
        yield f"{name}: {named('CPU', cpus)}{only}"
    for kind in machine.kinds:
        facts = [f"strength {kind.strength}"] if kind.source != "topology" else []  # it may be unknown
        facts += [f"inferred from {kind.inferred_from}"] if kind.inferred_from else []
        yield f"{kind.name} cores: {named('CPU', kind.cpus)} ({', '.join(facts)})"
    if machine.quota is not None:
        yield f"CPU time: {count(machine.quota, 'CPU')} (cgroup quota)"


def render_caches(machine: Machine) -> Iterator[str]:
    """Yield a line with the sizes of all caches, if they are known: "caches: 2 L3 of 32.0 MiB, …"."""
    groups = group_caches(machine).items()
    sizes = [f"{len(same)} {level.label} of {render_bytes(size)}" for (level, size), same in groups]
    if sizes:
        yield f"caches: {', '.join(sizes)}"


def group_caches(machine: Machine) -> dict[tuple[Level, int], CpuSet]:
    """Return the logical numbers of the caches of each level and size in bytes, widest level first."""
    groups: dict[tuple[Level, int], list[int]] = {}
    for domain in machine.domains:
        if domain.size_bytes:
            groups.setdefault((domain.level, domain.size_bytes), []).append(domain.index)
    return {key: CpuSet(indexes) for key, indexes in groups.items()}


def render_cpuless_node(node: Node) -> Iterator[str]:
    """Yield the parts of the title of a node without CPUs: number and memory, "no CPUs", nearest nodes."""
    yield f"NUMA node {node.number}{_memory(node)}"
    yield "no CPUs"
    if node.nearest:
        yield f"nearest to {named('node', node.nearest)}"


def render_title(machine: Machine, domain: Domain) -> str:
    """Return the name of a domain, with its size: "L3 0 (32.0 MiB)", "NUMA node 8 = node:1 (128 GiB)".

    "= node:1" is the name in masks. It is added where its number differs: masks count only allowed domains.
    """
    name = _mask_name(machine, domain)
    title = f"{domain.title} = {name}" if name else domain.title
    if domain.size_bytes:
        return f"{title} ({render_bytes(domain.size_bytes)})"
    nodes = machine.nodes if domain.level is Level.NODE else ()
    return title + next((_memory(node) for node in nodes if node.number == domain.os_id), "")


def _memory(node: Node) -> str:
    return "" if node.memory_bytes is None else f" ({render_bytes(node.memory_bytes)})"


def _mask_name(machine: Machine, domain: Domain) -> str:
    """Return the name of a domain in masks, "" if it has the same number or none of its CPUs is allowed."""
    if domain.level not in SELECTABLE or domain.cpus.isdisjoint(machine.allowed):
        return ""
    index = domain.index
    if machine.allowed != machine.online:
        index = sum(other.index < domain.index for other in machine.at(domain.level, machine.allowed))
    shown = domain.os_id if domain.level is Level.NODE else domain.index
    return "" if index == shown else f"{domain.level}:{index}"


_SHOWN_EACH = 4  # PCI functions of a kind that have a line each; of more, the first and the last share one
_NAMES = 3  # names of a PCI function that are shown

_NOT_FOR_RANKS = "not for ranks"
_UNKNOWN = "not known"


def render_device_lines(devices: Iterable[Device], around: CpuSet) -> Iterator[str]:
    """Yield a line for each PCI function of devices in `around`, or for all functions of a kind if many.

    A line says so if its devices are near other CPUs than these, or if that is not known.
    """
    for group in _group(devices, lambda device: (device.kind, device.excluded, device.cpus.bits)):
        cpus = group[0].cpus
        states = [f"near: {_UNKNOWN}"] if not cpus else [f"near CPUs {render_cpus(cpus)}"] * (cpus != around)
        functions = [list(run) for _, run in groupby(group, key=lambda device: device.address)]
        lines = [(partitions, _render_function(partitions)) for partitions in functions]
        if len(lines) > _SHOWN_EACH:
            lines = [(group, f"{lines[0][1]} to {lines[-1][1]}")]
        for shown, text in lines:
            yield ", ".join([f"{render_numbers(shown)} at {text}", *states, *_render_state(group[0])])


def render_device_names(devices: Iterable[Device], around: CpuSet = EMPTY) -> Iterator[str]:
    """Yield the names of devices, a text for each kind: "gpu:0-3", "display:0 (not for ranks)"."""
    for group in _group(devices, lambda device: (device.kind, device.excluded, bool(device.cpus))):
        states = [] if group[0].cpus else [f"near: {_UNKNOWN}"]
        states += ["excluded"] if group[0].excluded else _render_state(group[0])
        yield render_numbers(group) + (f" ({', '.join(states)})" if states else "")


def render_numbers(devices: Sequence[Device]) -> str:
    """Return devices of one kind as one name: "gpu:0-3,6"."""
    return f"{devices[0].kind}:{CpuSet(device.index for device in devices)}"


def render_device_tables(devices: Sequence[Device], screen: Screen) -> Iterator[str]:
    """Yield a table of devices, and tables of remarks and of UUIDs: most devices have none."""
    cpus = [render_cpus(device.cpus) or _UNKNOWN for device in devices]
    columns = [
        Column(title="device", cells=[device.name for device in devices]),
        Column(title="address", cells=[_render_address(device) for device in devices]),
        Column(title="node", cells=["-" if device.node is None else str(device.node) for device in devices]),
        Column(title="near CPUs", cells=cpus, grows=True),
        Column(title="names", cells=[", ".join(device.names) or "-" for device in devices], grows=True),
    ]
    yield render_table(columns, screen.text_width)
    remarks = []
    for device in devices:
        details = [*_render_state(device)]
        details += [f"virtual function of {device.physical}"] if device.physical else []
        remarks.append((device, ", ".join(details)))
    uuids = ((device, device.uuid) for device in devices)
    for title, pairs in (("remark", remarks), ("UUID", uuids)):
        known = [(device, text) for device, text in pairs if text]
        columns = [
            Column(title="device", cells=[device.name for device, _ in known]),
            Column(title=title, cells=[text for _, text in known], grows=title == "remark"),
        ]
        if known:
            yield render_table(columns, screen.text_width)


def _group(devices: Iterable[Device], key: Callable[[Device], tuple[object, ...]]) -> list[list[Device]]:
    """Group devices with the same key, in the order of their first devices."""
    groups: dict[tuple[object, ...], list[Device]] = {}
    for device in devices:
        groups.setdefault(key(device), []).append(device)
    return list(groups.values())


def _render_state(device: Device) -> Iterator[str]:
    if device.kind is DeviceKind.DISPLAY:
        yield _NOT_FOR_RANKS
    if device.excluded:
        yield f"excluded: {device.excluded}"


def _render_function(partitions: Sequence[Device]) -> str:
    first = partitions[0]
    if len(partitions) > 1:
        names = [next(iter(device.names), "") for device in (first, partitions[-1])]
        words = [f"{len(partitions)} partitions", *([" to ".join(names)] * all(names))]
        return f"{first.address} ({', '.join(words)})"
    names = [*first.names[:_NAMES], *["..."] * (len(first.names) > _NAMES)]
    return f"{_render_address(first)} ({', '.join(names)})" if names else _render_address(first)


def _render_address(device: Device) -> str:
    return device.address if device.partition is None else f"{device.address}/{device.partition}"


def device_record(device: Device) -> dict[str, object]:
    """Return the JSON value of a device."""
    return {
        "device": device.name,
        "kind": str(device.kind),
        "address": device.address,
        "partition": device.partition,
        "class": device.pci_class,
        "vendor": device.vendor,
        "product": device.product,
        "cpus": str(device.cpus),
        "node": device.node,
        "names": list(device.names),
        "rdma_names": list(device.rdma_names),
        "uuid": device.uuid or None,
        "ordinal": device.ordinal,
        "physical": device.physical or None,
        "excluded": device.excluded or None,
    }


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
