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
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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
from ompbind.machine.read.linux_topology import GPU_DIRECTORY
from ompbind.machine.read.root import Root, keyed_lines, numbered, read_set, read_word
from ompbind.text import whole_number

_BUS = "sys/bus/pci/devices"
_NAMES = ("drm", "accel", "net", "infiniband")
_DEPTH_LIMIT = 40  # directories below sys/devices; a kernel allows 255 buses, machines have up to 10 bridges
_NAME_LIMIT = 64  # characters of a name; the kernel allows 15 for interfaces and 63 for RDMA devices

_FOR_VIRTUAL_MACHINES = ("vfio-pci", "pci-stub", "xen-pciback")  # drivers that reserve a function for one

Directories = tuple[str, ...]
"""The directories of a PCI function and of the bridges above it, the nearest first."""

Names = Mapping[tuple[str, str], Sequence[str]]  # what drivers call PCI functions, by (address, class)

Parts = dict[str, list[Device]]
"""What a vendor's files say of its GPUs or of their partitions, by PCI address.

The names of a whole GPU are more names of its function; a partition has names of its own.
"""


def read_devices(root: Root, machine: Machine, *, device_files: str | None = None) -> tuple[Device, ...]:
    """Read the devices of a machine whose CPUs and NUMA nodes are known already, in device order.

    `device_files` is the directory of the device files of this machine, None for a recording.
    """
    functions, linked = read_functions(root), _read_linked_names(root)
    parts = _read_kfd_gpus(root, functions) | _read_nvidia_gpus(root)
    found: list[Device] = []
    for address, directories in functions.items():
        found += _read_function(root, machine, address, directories, linked, parts)
    if device_files is not None:
        lines = (root.read("proc/self/mountinfo") or "").splitlines()
        found_at = [line.partition(" - ")[2].split()[:1] for line in lines if f" {device_files} " in line]
        is_host = found_at[-1:] == [["devtmpfs"]]
        for at, device in enumerate(found):
            if device.kind is DeviceKind.GPU and not device.excluded:
                found[at] = device.replace(excluded=find_denial(device, device_files, is_host=is_host))
    usable = {device.address for device in found if not device.excluded}
    for at, device in enumerate(found):  # ranks can get the physical function itself
        if device.physical in usable and not device.excluded:
            found[at] = device.replace(excluded=f"virtual function of {device.physical}")
    return number_devices(found)


def _read_function(
    root: Root, machine: Machine, address: str, directories: Directories, linked: Names, parts: Parts
) -> Iterator[Device]:
    directory, own = directories[0], parts.get(address, [])
    pci_class = _read_number(root, f"{directory}/class")
    if not pci_class.startswith(CLASSES):
        return
    by_class = {name: set(linked.get((address, name), ())) for name in _NAMES}
    for name in by_class.keys() & set(root.names(directory)):
        by_class[name].update(root.names(f"{directory}/{name}"))
    names = tuple(dict.fromkeys(name for found in by_class.values() for name in _sort_usable(found)))
    vendor, product = (_read_number(root, f"{directory}/{name}") for name in ("vendor", "device"))
    kind = find_kind(pci_class, vendor, names, is_driven=bool(own))
    if kind is None:
        return
    cpus, node = read_locality(root, directories, machine)
    links = (root.link(f"{directory}/{name}") or "" for name in ("driver", "physfn"))
    driver, physical = map(os.path.basename, links)
    reserved = f"reserved by {driver} for a virtual machine" if driver in _FOR_VIRTUAL_MACHINES else ""
    whole = [Device(kind=kind, index=0, address=address)]
    for part in own if own and kind is DeviceKind.GPU else whole:
        yield part.replace(
            pci_class=pci_class,
            vendor=vendor,
            product=product,
            cpus=cpus,
            node=node,
            names=(*names, *part.names) if part.partition is None else part.names,
            rdma_names=tuple(_sort_usable(by_class["infiniband"])),
            physical=physical,
            excluded=reserved or part.excluded,
        )


def read_functions(root: Root) -> dict[str, Directories]:
    """Return the directories of all PCI functions of a machine, by address."""
    found: dict[str, Directories] = {}
    for name in filter(is_address, root.names(_BUS)):
        path = (root.link(f"{_BUS}/{name}") or "").split("/")
        bridges = (f"{_BUS}/{above}" for above in reversed(path[:-1]) if is_address(above))
        found[name] = (f"{_BUS}/{name}", *bridges)
    if not found:
        for top in root.names("sys/devices"):
            if top.startswith("pci"):
                found.update(_search(root, f"sys/devices/{top}"))
    return found


def _search(root: Root, directory: str, bridges: Directories = ()) -> Iterator[tuple[str, Directories]]:
    for name in filter(is_address, root.names(directory)):
        directories = (f"{directory}/{name}", *bridges)
        yield name, directories
        if len(bridges) < _DEPTH_LIMIT:
            yield from _search(root, directories[0], directories)


def _read_number(root: Root, path: str) -> str:
    """Return a number of a PCI function in 4 hexadecimal digits, as "10de", a class without its interface."""
    digits = read_word(root, path).lower().removeprefix("0x")
    return digits[:4] if len(digits) in (4, 6) and is_hexadecimal(digits) else ""


def _read_linked_names(root: Root) -> Names:
    """Read names from the links in `sys/class`: interfaces of virtio devices have nothing else."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind in _NAMES:
        for name in root.names(f"sys/class/{kind}"):
            path = (root.link(f"sys/class/{kind}/{name}") or "").split("/")
            address = next(filter(is_address, reversed(path)), "")
            if address and path[-2] == kind:  # connectors of a graphics card are one directory deeper
                found.setdefault((address, kind), []).append(name)
    return found


def _sort_usable(names: Iterable[str]) -> list[str]:
    """Return the names that fit into variables and messages, in the order of their numbers."""
    usable = (name for name in names if len(name) <= _NAME_LIMIT and name.isascii() and name.isprintable())
    plain = (name for name in usable if not {" ", ","} & set(name))
    return sorted(plain, key=lambda name: (stem := name.rstrip("0123456789"), len(name) - len(stem), name))


def read_locality(root: Root, directories: Directories, machine: Machine) -> tuple[CpuSet, int | None]:
    """Read which CPUs a PCI function is near, and their NUMA node; empty and None if that is not known.

    Its own files decide, else the files of the bridges above it. Without any of them, a machine with one NUMA
    node has only one answer. With several nodes -1 is never node 0, and never all nodes.
    """
    found = (_read_own_locality(root, path, machine) for path in directories)
    return next(filter(None, found), (EMPTY, None))


def _read_own_locality(root: Root, directory: str, machine: Machine) -> tuple[CpuSet, int | None] | None:
    """Read the locality that the files of one function give; None if they leave it open.

    A mask of all CPUs means "not known" if the kernel names no node. If the CPUs are all outside of the node
    that it names, the CPUs decide: interrupts go there, and other tools trust them, too. The node is None if
    the CPUs are in several nodes.
    """
    local = read_set(root, [(f"{directory}/local_cpus", f"{directory}/local_cpulist")])
    local = (local or EMPTY) & machine.online
    number = whole_number(read_word(root, f"{directory}/numa_node"))
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
# Until a program has used a GPU, its UUID is shown as question marks.


_DRIVER = "proc/driver/nvidia"
_OWN_UUIDS = (470, 42, 1)  # from this version on, MIG instances have a UUID that no file shows


def _read_nvidia_gpus(root: Root) -> Parts:
    number = re.search(r"(?<!\S)[0-9]{1,6}(\.[0-9]{1,6})+(?!\S)", root.read(f"{_DRIVER}/version") or "")
    version = tuple(map(int, number[0].split("."))) if number else _OWN_UUIDS
    found: Parts = {}
    for name in filter(lambda name: is_address(name.lower()), root.names(GPU_DIRECTORY)):
        facts = dict(keyed_lines(root.read(f"{GPU_DIRECTORY}/{name}/information")))
        uuid, minor = facts.get("GPU UUID", ""), whole_number(facts.get("Device Minor"), 1 << 20)
        digits = uuid.removeprefix("GPU-").replace("-", "").lower()
        if not (uuid.startswith("GPU-") and len(digits) == 32 and is_hexadecimal(digits)):
            uuid = ""  # anything else, as question marks
        is_excluded = facts.get("GPU Excluded", facts.get("GPU Blacklisted")) == "Yes"
        whole = Device(
            kind=DeviceKind.GPU,
            index=0,
            address=name.lower(),
            names=() if minor is None else (f"nvidia{minor}",),
            uuid=uuid,
            excluded="NVIDIA's driver excludes it" if is_excluded else "",
        )
        parts = list[Device]()
        directory = f"{_DRIVER}/capabilities/gpu{minor}/mig"
        for outer in numbered(root.names(directory), "gi"):
            for inner in numbered(root.names(f"{directory}/gi{outer}"), "ci"):
                facts = dict(keyed_lines(root.read(f"{directory}/gi{outer}/ci{inner}/access")))
                capability = whole_number(facts.get("DeviceFileMinor"), 1 << 20)
                own = () if capability is None else (f"nvidia-cap{capability}",)
                uuid_here = f"MIG-{uuid}/{outer}/{inner}" if uuid and version < _OWN_UUIDS else ""
                parts.append(whole.replace(partition=len(parts), names=(*own, *whole.names), uuid=uuid_here))
        found[whole.address] = parts or [whole]
    return found


# AMD GPUs and their partitions, from the topology of the kernel's compute driver (KFD).
#
#     sys/class/kfd/kfd/topology/nodes/N/properties     a line "name value" per property
#
# A node with SIMDs is a GPU, or one partition of a GPU: several nodes then have the same PCI function. ROCm
# numbers the GPUs in the order of these nodes, and skips nodes that it may not read, as the device cgroup
# of a container forbids.


_KFD = ("sys/class/kfd/kfd/topology/nodes", "sys/devices/virtual/kfd/kfd/topology/nodes")


def _read_kfd_gpus(root: Root, functions: Collection[str]) -> Parts:
    directory = next((path for path in _KFD if root.names(path)), _KFD[0])
    found: Parts = {}
    ordinal = 0
    for kfd_node in numbered(root.names(directory), ""):
        lines = (root.read(f"{directory}/{kfd_node}/properties") or "").splitlines()
        pairs = (line.partition(" ") for line in lines)
        numbers = {name: whole_number(value, 1 << 64) or 0 for name, _, value in pairs}
        if not numbers.get("simd_count"):
            continue
        names = ("location_id", "domain", "drm_render_minor", "unique_id")
        location, domain, minor, unique_id = (numbers.get(name, 0) for name in names)
        slot = f"{domain & 0xFFFFFFFF:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
        address = f"{slot}.{location & 7}"
        if address not in functions:  # some kernels write the number of a partition instead
            address = f"{slot}.0"
        parts = found.setdefault(address, [])
        gpu = Device(
            kind=DeviceKind.GPU,
            index=0,
            address=address,
            partition=len(parts),
            names=(f"renderD{minor}",) if minor else (),
            uuid=f"GPU-{unique_id:016x}" if unique_id else "",
            ordinal=ordinal,
        )
        parts.append(gpu)
        ordinal += 1
    for parts in found.values():
        if len(parts) == 1:  # the function itself has the name
            parts[0] = parts[0].replace(names=(), partition=None)
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
    for path, mode in paths:
        file = f"{directory}/{path}"
        if not os.access(file, mode):
            try:
                os.lstat(file)
            except FileNotFoundError:
                if is_host and path.startswith("nvidia"):
                    continue
                return f"{file} does not exist"
            except OSError:
                pass
            return f"no access to {file}"
    return "" if paths else "no driver that computes uses it"


def _files_of(device: Device) -> Iterator[tuple[str, int]]:
    """Yield the device files that programs open to compute on a GPU, below /dev, and how they open them."""
    both = os.R_OK | os.W_OK
    stems = {name: stem for name in device.names if (stem := name.rstrip("0123456789")) != name}
    for name, stem in stems.items():
        if stem == "nvidia":
            yield from (("nvidiactl", both), (name, both))
        elif stem == "nvidia-cap":
            yield f"nvidia-caps/{name}", os.R_OK
        elif stem == "renderD" and "nvidia" not in stems.values():
            yield f"dri/{name}", both
    if device.vendor == AMD and device.ordinal is not None:
        yield "kfd", both
