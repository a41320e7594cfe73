"""Checks of `ompbind doctor`: whether allowed CPUs are near the GPUs, and what a virtual machine hides."""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import count, named
from ompbind.doctor.facts import HostFacts, HostIssue, note, ok
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.model import Level, Machine
from ompbind.planning.devices.locality import find_locality, find_near
from ompbind.planning.devices.visible import find_visible_devices

_PROVIDER = "ask the provider of the machine"


def check_devices(host: HostFacts) -> Iterator[HostIssue]:
    """Look for GPUs that no allowed CPU is near."""
    machine = host.machine
    if machine is None:
        return
    visible = find_visible_devices(machine.devices, host.env).devices
    gpus = [device for device in visible if device.kind is DeviceKind.GPU]
    if not gpus:
        return
    localities = [(gpu, find_locality(machine, [gpu], machine.allowed)) for gpu in gpus]
    far = [(gpu, locality) for gpu, locality in localities if locality.is_nearest]
    for gpu, locality in far:
        node = "" if gpu.node is None else f" on NUMA node {gpu.node}"
        found = f"is near {named('CPU', locality.near)}{node}, but only CPUs {machine.allowed} are allowed"
        where = "AllowedCPUs= of the systemd unit"
        if host.kernel.container:
            where = "docker and podman: --cpuset-cpus"
        allow = f"allow some of CPUs {locality.near} ({where}, taskset, or the batch system)"
        why = "every transfer between this GPU and a rank crosses to another NUMA node"
        yield note(f"{gpu.name} ({gpu.address})", found, why, f"{allow}, or use another GPU")
    unknown = [gpu for gpu, locality in localities if not locality.is_known]
    if unknown and len(machine.at(Level.NODE)) > 1 and not host.kernel.hypervisor:
        found = f"{_list(unknown)}: the firmware does not report a NUMA node"
        why = "plans cannot place ranks near these GPUs, and spread them over all NUMA nodes"
        yield note("GPUs", found, why, "name the CPUs with -m; look for a newer firmware (BIOS)")
    elif not far:
        near = "" if unknown else ", all near allowed CPUs"
        yield ok("GPUs", f"{count(len(gpus), 'GPU')}{near}")


def _list(devices: Sequence[Device]) -> str:
    return ", ".join(device.name for device in devices)


def check_virtual(host: HostFacts) -> Iterator[HostIssue]:
    """Look for parts of the topology that a hypervisor has not passed on, or made up."""
    machine, hypervisor = host.machine, host.kernel.hypervisor
    if machine is None or not hypervisor:
        return
    issues = [*_find_made_up_cores(machine, hypervisor), *_find_made_up_devices(machine, hypervisor)]
    found = f"{hypervisor}: cores, caches and NUMA nodes are as the hypervisor reports them"
    yield from issues or [ok("virtual machine", found)]


def _find_made_up_cores(machine: Machine, hypervisor: str) -> Iterator[HostIssue]:
    """Look for packages of one CPU each, and for CPUs without shared caches."""
    packages, cpus = machine.at(Level.PACKAGE), len(machine.online)
    if cpus > 1 and packages and all(len(package.cpus) == 1 for package in packages):
        found = f"{hypervisor}: each of {cpus} CPUs is a package of its own"
        why = "ompbind cannot know which CPUs share a core or a cache: ranks may share them unseen"
        remedy = f"{_PROVIDER} for the real CPU topology (QEMU: -smp sockets=,cores=,threads=)"
        yield note("virtual machine", found, why, remedy)
    elif cpus > 1 and all(len(cache.cpus) == 1 for cache in machine.at(Level.L3)):
        found = f"{hypervisor}: no L3 cache is shared"
        why = "plans do not keep the threads of a rank in one cache, because none is reported"
        remedy = f"{_PROVIDER} for the caches (libvirt: <cache mode='passthrough'/>)"
        yield note("virtual machine", found, why, remedy)


def _find_made_up_devices(machine: Machine, hypervisor: str) -> Iterator[HostIssue]:
    """Look for GPUs without a NUMA node, or all on one node although there are several."""
    nodes = machine.at(Level.NODE)
    gpus = [device for device in machine.devices if device.kind is DeviceKind.GPU and not device.excluded]
    if len(nodes) < 2 or not gpus:
        return
    unknown = [gpu for gpu in gpus if not find_near(machine, gpu)]
    remedy = f"{_PROVIDER} for GPUs below a PCI bus of their NUMA node (QEMU: pxb-pcie with numa_node=)"
    if unknown:
        found = f"{hypervisor}: the NUMA node of {_list(unknown)} is not passed on"
        why = f"plans cannot place ranks near these GPUs, and spread them over all {len(nodes)} NUMA nodes"
        yield note("virtual machine", found, why, remedy)
    elif len(gpus) > 1 and len({gpu.node for gpu in gpus}) == 1:
        found = f"{hypervisor}: all {len(gpus)} GPUs are on NUMA node {gpus[0].node} of {len(nodes)} nodes"
        why = "the hypervisor may have made this up; plans then divide the CPUs of one node among all ranks"
        yield note("virtual machine", found, why, f"compare 'nvidia-smi topo -m' on the host; {remedy}")
