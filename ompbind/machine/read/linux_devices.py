"""GPUs, network interfaces and accelerators: PCI functions below `sys`, and the partitions of GPUs.

    sys/bus/pci/devices/ADDRESS     a link to the function's directory, with all bridges above it in its path
    ADDRESS/class, vendor, …        what the function is, as "0x030200"
    ADDRESS/local_cpus, numa_node   the CPUs and the NUMA node that it is near; -1 if the firmware names none
    ADDRESS/drm, net, …             directories of the names that drivers call it; also links in `sys/class`
    ADDRESS/physfn                  for a virtual function, a link to its physical function

    PCI functions of a kind that is a device → names, locality → partitions and UUIDs from the vendors' files
    → reasons why no rank gets some of them → device order

A recording may lack `sys/bus`; then the directories below `sys/devices/pci*` are searched. A program that
computes on a GPU opens device files. They are checked on this machine; a recording has none.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.machine.devices import (
    AMD,
    CLASSES,
    Device,
    DeviceKind,
    find_kind,
    is_address,
    is_hexadecimal,
    number_devices,
)
from ompbind.machine.model import Machine
from ompbind.machine.read.linux_numa import GPU_DIRECTORY
from ompbind.machine.read.root import Root, keyed_lines, numbered, read_set, whole_number
from ompbind.record import Record

_BUS = "sys/bus/pci/devices"
_NAMES = ("drm", "accel", "net", "infiniband")
_DEPTH_LIMIT = 40  # directories below sys/devices; a kernel allows 255 buses, machines have up to 10 bridges
_NAME_LIMIT = 64  # characters of a name; the kernel allows 15 for interfaces and 63 for RDMA devices

_FOR_VIRTUAL_MACHINES = ("vfio-pci", "pci-stub", "xen-pciback")
"""Drivers that reserve a function for a virtual machine."""

Locality = tuple[CpuSet, int | None]
"""The CPUs that a device is near, and their NUMA node; empty and None if that is not known."""


class PciFunction(Record):
    """One PCI function, and the directory of its files; `bridges` are addresses, the nearest first."""

    address: str
    directory: str
    pci_class: str = ""
    bridges: tuple[str, ...] = ()


class _VendorGpu(Record):
    """What the files of a vendor's driver say of a GPU, or of one of its partitions.

    A partition has `names` of its own; the names of a whole GPU are more names of its function.
    """

    names: tuple[str, ...] = ()
    uuid: str = ""
    ordinal: int | None = None
    excluded: str = ""
    is_partition: bool = False


def read_devices(root: Root, machine: Machine, *, device_files: str | None = None) -> tuple[Device, ...]:
    """Read the devices of a machine whose CPUs and NUMA nodes are known already, in device order.

    `device_files` is the directory of the device files of this machine, None for a recording.
    """
    functions = {function.address: function for function in read_functions(root)}
    gpus = {**_read_kfd_gpus(root, functions), **_read_nvidia_gpus(root)}
    linked = _read_linked_names(root)
    found: list[Device] = []
    for function in functions.values():
        if function.pci_class.startswith(CLASSES):
            found += _read_function(root, machine, function, linked, gpus.get(function.address, ()))
    if device_files is not None:
        is_host = is_on_host(root, device_files)
        for at, device in enumerate(found):
            if device.kind is DeviceKind.GPU and not device.excluded:
                found[at] = device.replace(excluded=find_denial(device, device_files, is_host=is_host))
    usable = {device.address for device in found if not device.excluded}
    for at, device in enumerate(found):  # ranks can get the physical function itself
        if device.physical in usable and not device.excluded:
            found[at] = device.replace(excluded=f"virtual function of {device.physical}")
    return number_devices(found)


def _read_function(
    root: Root,
    machine: Machine,
    function: PciFunction,
    linked: Mapping[tuple[str, str], Sequence[str]],
    parts: Sequence[_VendorGpu],
) -> Iterator[Device]:
    """Yield the device of a PCI function or its partitions; nothing if the function is no device."""
    directory = function.directory
    names, rdma_names = _read_names(root, function, linked)
    vendor = _read_number(root, f"{directory}/vendor")
    kind = find_kind(function.pci_class, vendor, names, is_driven=bool(parts))
    if kind is None:
        return
    cpus, node = read_locality(root, function, machine)
    driver, physical = (
        (root.link(f"{directory}/{name}") or "").rstrip("/").rpartition("/")[2]
        for name in ("driver", "physfn")
    )
    device = Device(
        kind=kind,
        index=0,
        address=function.address,
        pci_class=function.pci_class,
        vendor=vendor,
        product=_read_number(root, f"{directory}/device"),
        cpus=cpus,
        node=node,
        names=names,
        rdma_names=rdma_names,
        physical=physical,
        excluded=f"reserved by {driver} for a virtual machine" if driver in _FOR_VIRTUAL_MACHINES else "",
    )
    if kind is not DeviceKind.GPU or not parts:
        yield device
        return
    for number, part in enumerate(parts):
        yield device.replace(
            partition=number if part.is_partition else None,
            names=part.names if part.is_partition else (*names, *part.names),
            uuid=part.uuid,
            ordinal=part.ordinal,
            excluded=device.excluded or part.excluded,
        )


def read_functions(root: Root) -> Iterator[PciFunction]:
    """Yield all PCI functions of a machine, in any order."""
    names = [name for name in root.names(_BUS) if is_address(name)]
    for name in names:
        path = (root.link(f"{_BUS}/{name}") or "").rstrip("/").split("/")
        yield _make_function(root, f"{_BUS}/{name}", [*path[:-1], name])
    if not names:
        for top in root.names("sys/devices"):
            if top.startswith("pci"):
                yield from _search(root, f"sys/devices/{top}", _DEPTH_LIMIT)


def _search(root: Root, directory: str, depth: int) -> Iterator[PciFunction]:
    """Yield the PCI functions below a directory of `sys/devices`."""
    for name in filter(is_address, root.names(directory)):
        path = f"{directory}/{name}"
        yield _make_function(root, path, path.split("/"))
        if depth:
            yield from _search(root, path, depth - 1)


def _make_function(root: Root, directory: str, path: list[str]) -> PciFunction:
    return PciFunction(
        address=path[-1],
        directory=directory,
        pci_class=_read_number(root, f"{directory}/class"),
        bridges=tuple(name for name in reversed(path[:-1]) if is_address(name)),
    )


def _read_number(root: Root, path: str) -> str:
    """Return a number of a PCI function in 4 hexadecimal digits, as "10de"; "" if it is unknown.

    The class has 2 more digits, which are dropped: they are the programming interface.
    """
    digits = (root.read(path) or "").strip().lower().removeprefix("0x")
    return digits[:4] if len(digits) in (4, 6) and is_hexadecimal(digits) else ""


def _read_linked_names(root: Root) -> Mapping[tuple[str, str], Sequence[str]]:
    """Read what drivers call PCI functions from the links in `sys/class`: names by (address, class).

    The interface of a virtio device is below a directory of its own, and has only this link to the function.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for kind in _NAMES:
        for name in root.names(f"sys/class/{kind}"):
            path = (root.link(f"sys/class/{kind}/{name}") or "").split("/")
            address = next(filter(is_address, reversed(path)), "")
            if address and path[-2] == kind:  # connectors of a graphics card are one directory deeper
                found.setdefault((address, kind), []).append(name)
    return found


def _read_names(
    root: Root, function: PciFunction, linked: Mapping[tuple[str, str], Sequence[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read what drivers call a PCI function, from its directory, in addition to the names in links.

    Returns all names, and the names for RDMA libraries.
    """
    found = {kind: set(linked.get((function.address, kind), ())) for kind in _NAMES}
    for kind in found.keys() & set(root.names(function.directory)):
        found[kind].update(root.names(f"{function.directory}/{kind}"))
    names = [name for kind in _NAMES for name in _sort_usable(found[kind])]
    return tuple(dict.fromkeys(names)), tuple(_sort_usable(found["infiniband"]))


def _sort_usable(names: Iterable[str]) -> list[str]:
    """Return the names that fit into variables and messages, in the order of their numbers."""
    usable = (name for name in names if len(name) <= _NAME_LIMIT and name.isascii() and name.isprintable())
    plain = (name for name in usable if not {" ", ","} & set(name))
    return sorted(plain, key=lambda name: (stem := name.rstrip("0123456789"), len(name) - len(stem), name))


def read_locality(root: Root, function: PciFunction, machine: Machine) -> Locality:
    """Read which CPUs a PCI function is near: its own files decide, else the files of the bridges above it.

    Without any of them, a machine with one NUMA node has only one answer. With several nodes the locality is
    not known: -1 is never node 0, and never all nodes.
    """
    above = function.directory.split("/")[:-1]
    below_bus = function.directory.startswith(_BUS)
    bridges = [
        f"{_BUS}/{bridge}" if below_bus else "/".join(above[: len(above) - level])
        for level, bridge in enumerate(function.bridges)
    ]
    found = (_read_own_locality(root, path, machine) for path in (function.directory, *bridges))
    return next(filter(None, found), (EMPTY, None))


def _read_own_locality(root: Root, directory: str, machine: Machine) -> Locality | None:
    """Read the locality that the files of one function give; None if they leave it open.

    A mask of all CPUs means "not known" if the kernel names no node. If the CPUs are all outside of the node
    that it names, the CPUs decide: interrupts go there, and other tools trust them, too. The node is None if
    the CPUs are in several nodes.
    """
    local = read_set(root, [(f"{directory}/local_cpus", f"{directory}/local_cpulist")])
    local = (local or EMPTY) & machine.online
    number = whole_number(root.read(f"{directory}/numa_node"))
    node = next((node for node in machine.nodes if node.number == number), None)
    if node is None and len(machine.nodes) == 1:
        node = machine.nodes[0]
    if node:
        nearest = [other for other in machine.nodes if other.number in node.nearest]
        cpus = node.cpus or union(other.cpus for other in nearest)
        if not local or not local.isdisjoint(cpus):
            return local & cpus or cpus, node.number if node.cpus or not nearest else nearest[0].number
    elif not local or local == machine.online:
        return None
    around = [node.number for node in machine.nodes if not node.cpus.isdisjoint(local)]
    return local, around[0] if len(around) == 1 else None


# NVIDIA GPUs and their MIG instances, from the files of NVIDIA's driver below `proc/driver/nvidia`.
#
#     gpus/ADDRESS/information                     "GPU UUID: GPU-…", "Device Minor: 0", "GPU Excluded: No"
#     capabilities/gpuMINOR/mig/giG/ciC/access     one MIG compute instance; "DeviceFileMinor: 3"
#     version                                      the version of the driver
#
# The driver needs no library for these. Until a program has used a GPU, its UUID is shown as question
# marks.


_DRIVER = "proc/driver/nvidia"
_OWN_UUIDS = (470, 42, 1)
"""The first version of the driver whose MIG instances have a UUID of their own, which no file shows."""


def _read_nvidia_gpus(root: Root) -> dict[str, list[_VendorGpu]]:
    """Read the GPUs that NVIDIA's driver uses, or their MIG instances, by PCI address.

    They are named as their files: /dev/nvidiaN and /dev/nvidia-caps/nvidia-capN.
    """
    words = (root.read(f"{_DRIVER}/version") or "").split()
    versions = [word.split(".") for word in words if "." in word and word.replace(".", "").isdigit()]
    version = tuple(whole_number(part, 1 << 20) or 0 for part in versions[0]) if versions else _OWN_UUIDS
    found: dict[str, list[_VendorGpu]] = {}
    for name in filter(lambda name: is_address(name.lower()), root.names(GPU_DIRECTORY)):
        facts = dict(keyed_lines(root.read(f"{GPU_DIRECTORY}/{name}/information")))
        uuid, minor = facts.get("GPU UUID", ""), whole_number(facts.get("Device Minor"), 1 << 20)
        digits = uuid.removeprefix("GPU-").replace("-", "").lower()
        if not (uuid.startswith("GPU-") and len(digits) == 32 and is_hexadecimal(digits)):
            uuid = ""  # anything else, as question marks
        is_excluded = facts.get("GPU Excluded", facts.get("GPU Blacklisted")) == "Yes"
        whole = _VendorGpu(
            names=() if minor is None else (f"nvidia{minor}",),
            uuid=uuid,
            excluded="NVIDIA's driver excludes it" if is_excluded else "",
        )
        directory = f"{_DRIVER}/capabilities/gpu{minor}/mig"
        found[name.lower()] = []
        for outer in numbered(root.names(directory), "gi"):
            for inner in numbered(root.names(f"{directory}/gi{outer}"), "ci"):
                facts = dict(keyed_lines(root.read(f"{directory}/gi{outer}/ci{inner}/access")))
                capability = whole_number(facts.get("DeviceFileMinor"), 1 << 20)
                own = () if capability is None else (f"nvidia-cap{capability}",)
                uuid_here = f"MIG-{uuid}/{outer}/{inner}" if uuid and version < _OWN_UUIDS else ""
                part = whole.replace(names=(*own, *whole.names), uuid=uuid_here, is_partition=True)
                found[name.lower()].append(part)
        found[name.lower()] = found[name.lower()] or [whole]
    return found


# AMD GPUs and their partitions, from the topology of the kernel's compute driver (KFD).
#
#     sys/class/kfd/kfd/topology/nodes/N/properties
#
# has a line "name value" per property. A node with SIMDs is a GPU, or one partition of a GPU: several nodes
# then have the same PCI function. ROCm numbers the GPUs in the order of these nodes, and skips nodes that
# it may not read, as the device cgroup of a container forbids.


_KFD = ("sys/class/kfd/kfd/topology/nodes", "sys/devices/virtual/kfd/kfd/topology/nodes")


def _read_kfd_gpus(root: Root, functions: Mapping[str, PciFunction]) -> dict[str, list[_VendorGpu]]:
    """Read the AMD GPUs, or their partitions, by PCI address; `ordinal` is ROCm's number."""
    directory = next((path for path in _KFD if root.names(path)), _KFD[0])
    found: dict[str, list[_VendorGpu]] = {}
    ordinal = 0
    for kfd_node in numbered(root.names(directory), ""):
        lines = (root.read(f"{directory}/{kfd_node}/properties") or "").splitlines()
        pairs = (line.partition(" ") for line in lines)
        numbers = {name: whole_number(value, 1 << 64) or 0 for name, _, value in pairs}
        if not numbers.get("simd_count"):
            continue
        location, domain = numbers.get("location_id", 0), numbers.get("domain", 0)
        minor, unique_id = numbers.get("drm_render_minor", 0), numbers.get("unique_id", 0)
        slot = f"{domain & 0xFFFFFFFF:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
        address = f"{slot}.{location & 7}"
        if address not in functions:  # some kernels write the number of a partition instead
            address = f"{slot}.0"
        gpu = _VendorGpu(
            names=(f"renderD{minor}",) if minor else (),
            uuid=f"GPU-{unique_id:016x}" if unique_id else "",
            ordinal=ordinal,
            is_partition=True,
        )
        found.setdefault(address, []).append(gpu)
        ordinal += 1
    for address, gpus in found.items():
        if len(gpus) == 1:  # the function itself has the name
            found[address] = [gpus[0].replace(names=(), is_partition=False)]
    return found


# Whether this process can open the device files of a GPU.
#
# In a container, sysfs shows all GPUs of the machine, but only some have device files or are permitted by
# the device cgroup. access(2) asks that cgroup, too, without opening the device: opening could wake it.
#
# On a host, NVIDIA's libraries make missing files when the first program uses a GPU (nvidia-modprobe).
# There, `/dev` is a devtmpfs. In a container it is not, and a missing file means that there is no access.


def find_denial(device: Device, directory: str, *, is_host: bool = False) -> str:
    """Return why this process cannot use a GPU; "" if it can.

    `directory` is /dev, or one like it. With `is_host`, missing files of NVIDIA are no reason.
    """
    paths = list(_files_of(device))
    if not paths:
        return "no driver that computes uses it"
    for path, mode in paths:
        file = f"{directory}/{path}"
        if os.access(file, mode):
            continue
        is_made_later = is_host and path.startswith("nvidia")
        try:
            os.lstat(file)
        except FileNotFoundError:
            if is_made_later:
                continue
            return f"{file} does not exist"
        except OSError:
            pass
        return f"no access to {file}"
    return ""


def is_on_host(root: Root, directory: str) -> bool:
    """Return whether a directory like /dev is that of a host, by the mounts of this process."""
    lines = (root.read("proc/self/mountinfo") or "").splitlines()
    kinds = [line.partition(" - ")[2].partition(" ")[0] for line in lines if f" {directory} " in line]
    return kinds[-1:] == ["devtmpfs"]


def _files_of(device: Device) -> Iterator[tuple[str, int]]:
    """Yield the device files that programs open to compute on a GPU, below /dev, and how they open them."""
    both = os.R_OK | os.W_OK
    has_own_file = any(_is_numbered(name, "nvidia") for name in device.names)
    for name in device.names:
        if _is_numbered(name, "nvidia"):
            yield from (("nvidiactl", both), (name, both))
        elif _is_numbered(name, "nvidia-cap"):
            yield f"nvidia-caps/{name}", os.R_OK
        elif _is_numbered(name, "renderD") and not has_own_file:
            yield f"dri/{name}", both
    if device.vendor == AMD and device.ordinal is not None:
        yield "kfd", both


def _is_numbered(name: str, stem: str) -> bool:
    return name.startswith(stem) and name[len(stem) :].isdigit()
