"""Devices for people: groups of them as lines of a tree or a picture, and as tables."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.devices import Device, DeviceKind
from ompbind.report.text import Column, Screen, render_cpus, render_table

_SHOWN_EACH = 4  # PCI functions of a kind that have a line each; of more, the first and the last share one
_NAMES = 3  # names of a PCI function that are shown

_NOT_FOR_RANKS = "not for ranks"
_UNKNOWN = "not known"


def render_device_lines(devices: Iterable[Device], around: CpuSet) -> Iterator[str]:
    """Yield a line for each PCI function of devices in `around`, or for all functions of a kind if many.

    A line says so if its devices are near other CPUs than these, or if that is not known.
    """
    for group in _group(devices, lambda device: (*_kind_and_reason(device), device.cpus.bits)):
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
    for group in _group(devices, lambda device: (*_kind_and_reason(device), bool(device.cpus))):
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
    remarks = ((device, ", ".join(_render_details(device))) for device in devices)
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


def _kind_and_reason(device: Device) -> tuple[DeviceKind, str]:
    return device.kind, device.excluded


def _render_state(device: Device) -> Iterator[str]:
    if device.kind is DeviceKind.DISPLAY:
        yield _NOT_FOR_RANKS
    if device.excluded:
        yield f"excluded: {device.excluded}"


def _render_details(device: Device) -> Iterator[str]:
    yield from _render_state(device)
    if device.physical:
        yield f"virtual function of {device.physical}"


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
