"""The output of `ompbind topo --format json`, schema ompbind-topo/2 → the same machine."""

from collections.abc import Iterator, Mapping
from typing import Any

from ompbind.cpuset import CPU_LIMIT, CpuSet
from ompbind.errors import MachineError
from ompbind.machine.devices import Device, DeviceKind, is_address
from ompbind.machine.model import (
    CORE_KIND_NAMES,
    CoreKind,
    Level,
    Machine,
    Node,
    Partition,
    check_size,
    make_domains,
    make_node_partition,
)
from ompbind.text import clean_line, whole_number

Data = Mapping[str, Any]

SCHEMA = "ompbind-topo/2"
_HINT = "write the file with: ompbind topo --format json"


def make_machine_from_json(data: Data, source: str, *, devices: bool = False) -> Machine:
    """Make the machine from a JSON object of schema ompbind-topo/2. Raises MachineError if it is invalid."""
    if data["schema"] != SCHEMA:
        message = f"{source!r} has the schema {str(data['schema'])[:40]!r}, not {SCHEMA!r}"
        raise MachineError(message, hint=_HINT)
    try:
        machine = _make(data, source)
        return machine.replace(devices=_devices(data, machine)) if devices else machine
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        wrong = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, TypeError | AttributeError):  # whose text names only types of Python
            wrong = "a value has the wrong type"
        raise MachineError(f"{source} is not valid {SCHEMA}: {wrong}", hint=_HINT) from error


def _make(data: Data, source: str) -> Machine:
    online = _set(data, "online")
    if not online:
        raise ValueError("it names no online CPU")
    rows = {_number(row["cpu"], CPU_LIMIT): row for row in data["cpus"]}
    if CpuSet(rows) != online:
        raise ValueError(f"'cpus' has CPUs {CpuSet(rows)}, 'online' has {online}")
    check_size(len(online), len(data["nodes"]))
    nodes = tuple(_node(row) for row in data["nodes"])
    parts: dict[Level, Partition] = {level: list(_partition(rows, data, level)) for level in Level}
    parts[Level.NODE] = make_node_partition(nodes)
    allowed = _set(data, "allowed") & online
    if not allowed:
        raise ValueError("it allows no online CPU")
    quota = data.get("quota_cpus")
    if quota is not None and (not isinstance(quota, int | float) or not 0 < quota < float("inf")):
        raise ValueError(f"quota_cpus is {quota!r}, not a positive number")
    machine = Machine(
        source=source,
        arch=str(data["arch"]),
        online=online,
        offline=_set(data, "offline") - online,
        allowed=allowed,
        domains=make_domains(online, parts),
        nodes=nodes,
        kinds=tuple(_kind(row) for row in data.get("kinds", ())),
        fast=_set(data, "fast"),
        isolated=_set(data, "isolated"),
        nohz_full=_set(data, "nohz_full"),
        quota=None if quota is None else float(quota),
        bindable=data.get("bindable", True) is True,
        remarks=tuple(str(remark) for remark in data.get("remarks", ())),
        memory_allowed=None if data.get("memory_allowed") is None else _set(data, "memory_allowed"),
    )
    return machine.with_cache_sizes(dict(_cache_sizes(rows, data)))


def _set(data: Data, name: str) -> CpuSet:
    return CpuSet.from_list(data.get(name, ""))


def _number(value: object, limit: int = 1 << 62) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise ValueError(f"{value!r} is not a valid number")
    return value


def _partition(rows: Mapping[int, Data], data: Data, level: Level) -> Iterator[tuple[int | None, CpuSet]]:
    """Group the CPUs by their logical number at a level; yield (OS number or None, CPUs) of each domain."""
    os_ids = {row["index"]: _number(row["os_id"]) for row in data.get("os_ids", ()) if row["level"] == level}
    groups: dict[int, list[int]] = {}
    for cpu, row in rows.items():
        index = row.get(level)
        if index is not None:
            groups.setdefault(_number(index), []).append(cpu)
    for index, cpus in groups.items():
        yield os_ids.get(index), CpuSet(cpus)


def _cache_sizes(rows: Mapping[int, Data], data: Data) -> Iterator[tuple[tuple[Level, int], int]]:
    """Yield ((level, CPU), bytes) for each CPU of each cache whose size is known."""
    for row in data.get("caches", ()):
        level, indexes = Level(row["level"]), CpuSet.from_list(row["indexes"])
        size = _number(row["size_bytes"])
        numbers = ((cpu, rows[cpu].get(level)) for cpu in rows)
        yield from (((level, cpu), size) for cpu, index in numbers if index is not None and index in indexes)


def _node(row: Data) -> Node:
    return Node(
        number=_number(row["node"], CPU_LIMIT),
        cpus=CpuSet.from_list(row["cpus"]),
        memory_bytes=_number_or_none(row.get("memory_bytes")),
        distances=tuple(_number(distance) for distance in row.get("distances", ())),
        nearest=tuple(_number(node) for node in row.get("nearest", ())),
    )


def _kind(row: Data) -> CoreKind:
    if row["kind"] not in CORE_KIND_NAMES:
        raise ValueError(f"{row['kind']!r} is not a kind of core")
    return CoreKind(
        name=row["kind"],
        cpus=CpuSet.from_list(row["cpus"]),
        strength=_number(row["strength"]),
        source=str(row["told_by"]),
    )


def _devices(data: Data, machine: Machine) -> tuple[Device, ...]:
    devices = tuple(map(_device, data.get("devices", ())))
    names = {device.name for device in devices}
    if min(len(names), len({(device.address, device.partition) for device in devices})) < len(devices):
        raise ValueError("'devices' has a device twice")
    for device in devices:
        if not device.cpus <= machine.online:
            raise ValueError(f"{device} is near CPUs {device.cpus}, 'online' has {machine.online}")
    return devices


def _device(row: Data) -> Device:
    kind, _, index = row["device"].partition(":")
    if row["kind"] != kind or kind not in list(DeviceKind):
        raise ValueError(f"{row['device']!r} is not a device of the kind {row['kind']!r}")
    if not is_address(row["address"]):
        raise ValueError(f"{row['address']!r} is not a PCI address")
    facts: dict[str, Any] = {name: _number_or_none(row[name]) for name in ("partition", "node", "ordinal")}
    facts |= {name: tuple(map(clean_line, row[name])) for name in ("names", "rdma_names")}
    for name in ("vendor", "product", "uuid", "physical", "excluded"):
        facts[name] = clean_line(row[name] or "")
    return Device(
        kind=DeviceKind(kind),
        index=_number(whole_number(index)),
        address=row["address"],
        pci_class=clean_line(row["class"] or ""),
        cpus=CpuSet.from_list(row["cpus"]),
        **facts,
    )


def _number_or_none(value: object) -> int | None:
    return None if value is None else _number(value)
