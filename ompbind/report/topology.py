"""A machine and its parts as text: its size, its limits, and the titles of its domains and devices."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from ompbind.cpuset import CpuSet, count, named
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.model import Domain, Level, Machine, Node
from ompbind.masks.mask import SELECTABLE
from ompbind.report.text import Column, Screen, render_bytes, render_cpus, render_table
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
    for choice in ("cache", "fast"):
        if (cpus := machine.cpus_of_kind(choice)) not in (
            machine.online,
            *(kind.cpus for kind in machine.kinds),
        ):
            yield f"cores of --core-kind {choice}: {named('CPU', cpus)}"
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


def render_device_names(devices: Iterable[Device]) -> Iterator[str]:
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
    groups: dict[tuple[object, ...], list[Device]] = {}
    for device in devices:
        groups.setdefault(key(device), []).append(device)
    return list(groups.values())


def _render_state(device: Device) -> Iterator[str]:
    if device.kind is DeviceKind.DISPLAY:
        yield "not for ranks"
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
