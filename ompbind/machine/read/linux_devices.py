"""GPUs, network interfaces and accelerators: PCI functions, and the partitions of GPUs.

    PCI functions of a kind that is a device → names, locality → partitions and UUIDs from the vendors' files
    → reasons why no rank gets some of them → device order

A program that computes on a GPU opens device files. They are checked on this machine; a recording has none.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

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
from ompbind.machine.read.linux_pci import (
    PciFunction,
    read_functions,
    read_link_target,
    read_linked_names,
    read_locality,
    read_names,
    read_number,
)
from ompbind.machine.read.root import Root, keyed_lines, numbered, whole_number
from ompbind.record import Record

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


class MigInstance(Record):
    """A MIG compute instance; `uuid` is what `CUDA_VISIBLE_DEVICES` accepts, "" if no file shows it.

    `capability` is the number of its file /dev/nvidia-caps/nvidia-capN, None if it is unknown.
    """

    uuid: str = ""
    capability: int | None = None


class NvidiaGpu(Record):
    """A GPU that NVIDIA's driver uses; `minor` is the number of its file /dev/nvidiaN, None if unknown."""

    uuid: str = ""
    minor: int | None = None
    is_excluded: bool = False
    instances: tuple[MigInstance, ...] = ()


def read_nvidia_gpus(root: Root) -> dict[str, NvidiaGpu]:
    """Read the GPUs that NVIDIA's driver uses, by PCI address."""
    found = {}
    for name in root.names(GPU_DIRECTORY):
        if not is_address(name.lower()):
            continue
        facts = dict(keyed_lines(root.read(f"{GPU_DIRECTORY}/{name}/information")))
        uuid, minor = facts.get("GPU UUID", ""), whole_number(facts.get("Device Minor"), 1 << 20)
        digits = uuid.removeprefix("GPU-").replace("-", "").lower()
        if not (uuid.startswith("GPU-") and len(digits) == 32 and is_hexadecimal(digits)):
            uuid = ""  # anything else, as question marks
        found[name.lower()] = NvidiaGpu(
            uuid=uuid,
            minor=minor,
            is_excluded=facts.get("GPU Excluded", facts.get("GPU Blacklisted")) == "Yes",
            instances=() if minor is None else tuple(_read_instances(root, minor, uuid)),
        )
    return found


def _read_instances(root: Root, minor: int, uuid: str) -> Iterator[MigInstance]:
    """Yield the MIG compute instances of a GPU, in the order of their numbers."""
    directory = f"{_DRIVER}/capabilities/gpu{minor}/mig"
    for outer in numbered(root.names(directory), "gi"):
        for inner in numbered(root.names(f"{directory}/gi{outer}"), "ci"):
            facts = dict(keyed_lines(root.read(f"{directory}/gi{outer}/ci{inner}/access")))
            yield MigInstance(
                uuid=f"MIG-{uuid}/{outer}/{inner}" if uuid and _names_by_number(root) else "",
                capability=whole_number(facts.get("DeviceFileMinor"), 1 << 20),
            )


def _names_by_number(root: Root) -> bool:
    """Return whether the driver is so old that CUDA knows MIG instances by their GPU and by numbers."""
    words = (root.read(f"{_DRIVER}/version") or "").split()
    versions = [word.split(".") for word in words if "." in word and word.replace(".", "").isdigit()]
    numbers = tuple(whole_number(part, 1 << 20) or 0 for part in versions[0]) if versions else _OWN_UUIDS
    return numbers < _OWN_UUIDS


# AMD GPUs and their partitions, from the topology of the kernel's compute driver (KFD).
#
#     sys/class/kfd/kfd/topology/nodes/N/properties
#
# has a line "name value" per property. A node with SIMDs is a GPU, or one partition of a GPU: several nodes
# then have the same PCI function. ROCm numbers the GPUs in the order of these nodes, and skips nodes that
# it may not read, as the device cgroup of a container forbids.


_DIRECTORIES = ("sys/class/kfd/kfd/topology/nodes", "sys/devices/virtual/kfd/kfd/topology/nodes")


class KfdGpu(Record):
    """A GPU, or a partition of one, as the compute driver shows it.

    `slot` is the PCI address without the function, and `function` the function: some kernels write the number
    of the partition there. `uuid` is what `ROCR_VISIBLE_DEVICES` accepts, "" if the GPU has none.
    """

    ordinal: int
    slot: str
    function: int
    uuid: str = ""
    render_name: str = ""


def read_kfd_gpus(root: Root) -> tuple[KfdGpu, ...]:
    """Read the AMD GPUs and partitions, in ROCm's order."""
    directory = next((path for path in _DIRECTORIES if root.names(path)), _DIRECTORIES[0])
    nodes = numbered(root.names(directory), "")
    found: list[KfdGpu] = []
    for node in nodes:
        lines = (root.read(f"{directory}/{node}/properties") or "").splitlines()
        pairs = (line.partition(" ") for line in lines)
        numbers = {name: whole_number(value, 1 << 64) or 0 for name, _, value in pairs}
        if not numbers.get("simd_count"):
            continue
        location, domain = numbers.get("location_id", 0), numbers.get("domain", 0)
        minor, unique_id = numbers.get("drm_render_minor", 0), numbers.get("unique_id", 0)
        gpu = KfdGpu(
            ordinal=len(found),
            slot=f"{domain & 0xFFFFFFFF:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}",
            function=location & 7,
            uuid=f"GPU-{unique_id:016x}" if unique_id else "",
            render_name=f"renderD{minor}" if minor else "",
        )
        found.append(gpu)
    return tuple(found)


_FOR_VIRTUAL_MACHINES = ("vfio-pci", "pci-stub", "xen-pciback")
"""Drivers that reserve a function for a virtual machine."""


class _Drivers(Record):
    """What drivers say of PCI functions: names by (address, class), and the GPUs of vendors by address."""

    names: Mapping[tuple[str, str], Sequence[str]]
    nvidia: Mapping[str, NvidiaGpu]
    kfd: Mapping[str, Sequence[KfdGpu]]


def read_devices(root: Root, machine: Machine, *, device_files: str | None = None) -> tuple[Device, ...]:
    """Read the devices of a machine whose CPUs and NUMA nodes are known already, in device order.

    `device_files` is the directory of the device files of this machine, None for a recording.
    """
    functions = {function.address: function for function in read_functions(root)}
    relevant = [function for function in functions.values() if function.pci_class.startswith(CLASSES)]
    kfd: dict[str, list[KfdGpu]] = {}
    for gpu in read_kfd_gpus(root):
        address = f"{gpu.slot}.{gpu.function}"
        if address not in functions:  # some kernels write the number of a partition instead
            address = f"{gpu.slot}.0"
        kfd.setdefault(address, []).append(gpu)
    drivers = _Drivers(names=read_linked_names(root), nvidia=read_nvidia_gpus(root), kfd=kfd)
    found = [
        part for function in relevant for part in _read_function_devices(root, machine, function, drivers)
    ]
    if device_files is not None:
        is_host = is_on_host(root, device_files)
        for at, device in enumerate(found):
            if device.kind is DeviceKind.GPU and not device.excluded:
                found[at] = device.replace(excluded=find_denial(device, device_files, is_host=is_host))
    usable = {device.address for device in found if not device.excluded}
    return number_devices(  # ranks can get the physical function itself
        [
            device.replace(excluded=f"virtual function of {device.physical}")
            if device.physical in usable and not device.excluded
            else device
            for device in found
        ]
    )


def _read_function_devices(
    root: Root, machine: Machine, function: PciFunction, drivers: _Drivers
) -> Iterator[Device]:
    """Yield the device of a PCI function or its partitions; nothing if the function is no device."""
    address = function.address
    names, rdma_names = read_names(root, function, drivers.names)
    vendor = read_number(root, f"{function.directory}/vendor")
    is_driven = address in drivers.nvidia or address in drivers.kfd
    kind = find_kind(function.pci_class, vendor, names, is_driven=is_driven)
    if kind is None:
        return
    locality = read_locality(root, function, machine)
    driver = read_link_target(root, function, "driver")
    device = Device(
        kind=kind,
        index=0,
        address=address,
        pci_class=function.pci_class,
        vendor=vendor,
        product=read_number(root, f"{function.directory}/device"),
        cpus=locality.cpus,
        node=locality.node,
        names=names,
        rdma_names=rdma_names,
        physical=read_link_target(root, function, "physfn"),
        excluded=f"reserved by {driver} for a virtual machine" if driver in _FOR_VIRTUAL_MACHINES else "",
    )
    nvidia = drivers.nvidia.get(address)
    kfd = drivers.kfd.get(address, ())
    if device.kind is not DeviceKind.GPU:
        yield device
    elif nvidia:
        own = () if nvidia.minor is None else (f"nvidia{nvidia.minor}",)
        excluded = device.excluded or ("NVIDIA's driver excludes it" if nvidia.is_excluded else "")
        whole = device.replace(names=(*device.names, *own), uuid=nvidia.uuid, excluded=excluded)
        if not nvidia.instances:
            yield whole
        for number, instance in enumerate(nvidia.instances):
            file = () if instance.capability is None else (f"nvidia-cap{instance.capability}",)
            yield whole.replace(partition=number, names=(*file, *own), uuid=instance.uuid)
    elif kfd:
        for number, gpu in enumerate(kfd):
            part = device.replace(uuid=gpu.uuid, ordinal=gpu.ordinal)
            if len(kfd) > 1:
                render = (gpu.render_name,) if gpu.render_name else ()
                part = part.replace(partition=number, names=render)
            yield part
    else:
        yield device


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
