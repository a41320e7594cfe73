"""GPUs, network interfaces and accelerators: PCI functions, and the partitions of GPUs.

    PCI functions of a kind that is a device → names, locality → partitions and UUIDs from the vendors' files
    → reasons why no rank gets some of them → device order

A program that computes on a GPU opens device files. They are checked on this machine; a recording has none.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

from ompbind.machine.devices import AMD, CLASSES, Device, DeviceKind, find_kind, number_devices
from ompbind.machine.model import Machine
from ompbind.machine.sources.linux.gpu_drivers import KfdGpu, NvidiaGpu, read_kfd_gpus, read_nvidia_gpus
from ompbind.machine.sources.linux.pci import (
    PciFunction,
    read_functions,
    read_link_target,
    read_linked_names,
    read_locality,
    read_names,
    read_number,
)
from ompbind.machine.sources.root import Root

_FOR_VIRTUAL_MACHINES = ("vfio-pci", "pci-stub", "xen-pciback")
"""Drivers that reserve a function for a virtual machine."""


def read_devices(root: Root, machine: Machine, *, device_files: str | None = None) -> tuple[Device, ...]:
    """Read the devices of a machine whose CPUs and NUMA nodes are known already, in device order.

    `device_files` is the directory of the device files of this machine, None for a recording.
    """
    functions = {function.address: function for function in read_functions(root)}
    names, nvidia = read_linked_names(root), read_nvidia_gpus(root)
    kfd: dict[str, list[KfdGpu]] = {}
    for gpu in read_kfd_gpus(root):
        # Some kernels write the number of a partition where the number of the function belongs: a GPU that is
        # not at its address is at function 0.
        address = f"{gpu.slot}.{gpu.function}"
        kfd.setdefault(address if address in functions else f"{gpu.slot}.0", []).append(gpu)
    found: list[Device] = []
    for address, function in functions.items():
        if function.pci_class.startswith(CLASSES):
            gpus = kfd.get(address, ())
            found += _read_function_devices(root, machine, function, names, nvidia.get(address), gpus)
    if device_files is not None:
        is_host = is_on_host(root, device_files)
        found = [
            device.replace(excluded=find_denial(device, device_files, is_host=is_host))
            if device.kind is DeviceKind.GPU and not device.excluded
            else device
            for device in found
        ]
    return number_devices(_exclude_virtual(found))


def _read_function_devices(
    root: Root,
    machine: Machine,
    function: PciFunction,
    linked_names: Mapping[tuple[str, str], Sequence[str]],
    nvidia: NvidiaGpu | None,
    kfd: Sequence[KfdGpu],
) -> Iterator[Device]:
    """Yield the device of a PCI function or its partitions; nothing if the function is no device.

    `nvidia` and `kfd` are what the vendors' drivers say of the function.
    """
    names, rdma_names = read_names(root, function, linked_names)
    vendor = read_number(root, f"{function.directory}/vendor")
    is_driven = nvidia is not None or bool(kfd)
    kind = find_kind(function.pci_class, vendor, names, is_driven=is_driven)
    if kind is None:
        return
    locality = read_locality(root, function, machine)
    driver = read_link_target(root, function, "driver")
    device = Device(
        kind=kind,
        index=0,
        address=function.address,
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
    if kind is DeviceKind.GPU and nvidia:
        yield from _add_nvidia_facts(device, nvidia)
    elif kind is DeviceKind.GPU and len(kfd) > 1:
        for number, gpu in enumerate(kfd):
            own = tuple(filter(None, [gpu.render_name]))
            yield device.replace(partition=number, names=own, uuid=gpu.uuid, ordinal=gpu.ordinal)
    elif kind is DeviceKind.GPU and kfd:
        yield device.replace(uuid=kfd[0].uuid, ordinal=kfd[0].ordinal)
    else:
        yield device


def _add_nvidia_facts(device: Device, gpu: NvidiaGpu) -> Iterator[Device]:
    own = () if gpu.minor is None else (f"nvidia{gpu.minor}",)
    excluded = device.excluded or ("NVIDIA's driver excludes it" if gpu.is_excluded else "")
    whole = device.replace(names=(*device.names, *own), uuid=gpu.uuid, excluded=excluded)
    if not gpu.instances:
        yield whole
    for number, instance in enumerate(gpu.instances):
        file = () if instance.capability is None else (f"nvidia-cap{instance.capability}",)
        yield whole.replace(partition=number, names=(*file, *own), uuid=instance.uuid)


def _exclude_virtual(devices: Sequence[Device]) -> list[Device]:
    """Exclude virtual functions of physical functions that ranks can get themselves."""
    usable = {device.address for device in devices if not device.excluded}
    return [
        device.replace(excluded=f"virtual function of {device.physical}")
        if device.physical in usable and not device.excluded
        else device
        for device in devices
    ]


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
        is_made_later = is_host and path.startswith("nvidia")
        if refusal := _find_refusal(f"{directory}/{path}", mode, is_needed=not is_made_later):
            return refusal
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


def _find_refusal(path: str, mode: int, *, is_needed: bool) -> str:
    if os.access(path, mode):
        return ""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return f"{path} does not exist" if is_needed else ""
    except OSError:
        pass
    return f"no access to {path}"
