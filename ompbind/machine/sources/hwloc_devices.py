"""GPUs, network interfaces and accelerators in hwloc XML, of versions 1, 2 and 3.

    <object type="Package" cpuset="0x0000ffff">
      <object type="Bridge">
        <object type="PCIDev" pci_busid="0000:06:00.0" pci_type="0302 [10de:2335] [10de:18be] a1">
          <object type="OSDev" name="cuda0"/>
          <object type="OSDev" name="nvml0"><info name="NVIDIAUUID" value="GPU-…"/></object>

A PCI function is near the CPUs of the innermost object around it that has CPUs. Its OS devices are its names.
Several OS devices of one management library or of CUDA are the partitions of a GPU.
"""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.machine.devices import (
    AMD,
    Device,
    DeviceKind,
    find_kind,
    find_ordinal,
    is_address,
    is_hexadecimal,
    number_devices,
)
from ompbind.machine.model import Machine
from ompbind.machine.sources.hwloc_sets import parse_cpuset
from ompbind.record import Record
from ompbind.text import clean_name

_PARTITION_NAMES = ("cuda", "rsmi")
"""Beginnings of the names of OS devices that exist once for each partition of a GPU."""

_RDMA_TYPES = ("3", "32", "48")
"""Types of OS devices of RDMA: 3 in versions 1 and 2; a bit in version 3, also with that of networks."""


class _Function(Record):
    """A PCI function in XML: its object, the CPUs of the object around it, and its OS devices."""

    element: Element
    near: CpuSet
    names: tuple[Element, ...]


def parse_devices(tree: Element, machine: Machine) -> tuple[Device, ...]:
    """Return the devices in hwloc XML in device order, from the tree and the machine made from it.

    Raises ValueError for a PCI address or a set of CPUs that is not valid.
    """
    functions = _find_functions(tree, machine.online, machine.online)
    return number_devices(device for found in functions for device in _make_devices(found, machine))


def _find_functions(outer: Element, near: CpuSet, online: CpuSet) -> Iterator[_Function]:
    """Yield the PCI functions inside an object that is near some CPUs."""
    for inner in outer.iterfind("object"):
        if inner.get("type") == "PCIDev":
            yield _Function(element=inner, near=near, names=tuple(_find_names(inner)))
        around = parse_cpuset(inner.get("cpuset")) or EMPTY
        yield from _find_functions(inner, around & online or near, online)


def _find_names(function: Element) -> Iterator[Element]:
    """Yield the OS devices of a PCI function, but not of functions below it."""
    for inner in function.iterfind("object"):
        if inner.get("type") == "OSDev" and inner.get("name"):
            yield inner
        if inner.get("type") != "PCIDev":
            yield from _find_names(inner)


def _make_devices(function: _Function, machine: Machine) -> Iterator[Device]:
    """Yield the device of a PCI function, or its partitions; nothing for functions of other kinds."""
    pci_class, vendor, product = _parse_type(function.element.get("pci_type", ""))
    kind = find_kind(pci_class, vendor, map(_name, function.names))
    if kind is None:
        return
    address = function.element.get("pci_busid", "").lower()
    if not is_address(address):
        raise ValueError(f"the PCI address {clean_name(address)!r} is not valid")
    cpus, node = _locate(function.near, machine)
    parts = _partition(function.names) if kind is DeviceKind.GPU else [function.names]
    for number, part in enumerate(parts):
        yield Device(
            kind=kind,
            index=0,
            address=address,
            partition=number if len(parts) > 1 else None,
            pci_class=pci_class,
            vendor=vendor,
            product=product,
            cpus=cpus,
            node=node,
            names=tuple(map(_name, part)),
            rdma_names=tuple(_name(found) for found in part if found.get("osdev_type") in _RDMA_TYPES),
            uuid=_find_uuid(part, vendor),
            ordinal=find_ordinal(map(_name, part)) if kind is DeviceKind.GPU else None,
        )


def _name(os_device: Element) -> str:
    return clean_name(os_device.get("name", ""))


def _parse_type(text: str) -> tuple[str, str, str]:
    """Return class, vendor and product of "0302 [10de:2335] [10de:18be] a1"; "" for what is missing."""
    vendor, _, product = text.partition("[")[2].partition("]")[0].partition(":")
    return _hex(text[:4]), _hex(vendor), _hex(product)


def _hex(text: str) -> str:
    number = text.lower()
    return number if len(number) == 4 and is_hexadecimal(number) else ""


def _locate(near: CpuSet, machine: Machine) -> tuple[CpuSet, int | None]:
    """Return the CPUs and the NUMA node that a device is near.

    hwloc puts a device whose place is unknown beside all CPUs. On a machine of several nodes the place of
    such a device is not known; none of the nodes is a better guess than another.
    """
    nodes = [node for node in machine.nodes if node.cpus]
    if len(nodes) > 1 and near >= union(node.cpus for node in nodes):
        return EMPTY, None
    return near, next((node.number for node in nodes if near <= node.cpus), None)


def _partition(names: Sequence[Element]) -> list[list[Element]]:
    """Divide the OS devices of a GPU among its partitions; other names belong to each partition."""
    for stem in _PARTITION_NAMES:
        own = [found for found in names if _name(found).startswith(stem)]
        if len(own) > 1:
            common = [found for found in names if found not in own]
            return [[found, *common] for found in own]
    return [list(names)]


def _find_uuid(names: Sequence[Element], vendor: str) -> str:
    """Return the UUID that variables of the vendor accept; "" if it is unknown or was made anonymous.

    ROCr accepts GPU- and 16 digits, hwloc leaves out leading zeros. ZE_AFFINITY_MASK accepts no UUID.
    """
    infos = {info.get("name"): info.get("value", "") for found in names for info in found.iterfind("info")}
    text = clean_name(infos.get("NVIDIAUUID") or "")
    if vendor == AMD and (unique := infos.get("AMDUUID")):
        text = f"GPU-{clean_name(unique).rjust(16, '0')}"
    return text if text.removeprefix("GPU-").strip("0-") else ""
