"""Which CPUs are near a device, and how far the CPUs of a rank are from it.

A *locality* is the set of CPUs that a rank should get for its devices. It is never a guess: if the CPUs near
a device are not known, all CPUs are equally good, and NUMA node 0 is not preferred.
"""

from collections.abc import Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import PlanError
from ompbind.machine.devices import Device, DeviceKind, has_rdma
from ompbind.machine.model import Machine
from ompbind.machine.nodes import find_closest
from ompbind.planning.devices.visible import find_visible_devices
from ompbind.planning.request import Request, VisibleDevices
from ompbind.record import Record

LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20
"""The distances of a NUMA node from itself and from another, if the firmware reports none (ACPI SLIT)."""


class DeviceLocality(Record):
    """The CPUs that a rank should get for its devices; `cpus` are allowed CPUs, and never empty.

    `preferred` are the CPUs among them that are near at least one of the devices, or all of them. `near` are
    all online CPUs that the devices are near, empty if they are not known. With `is_nearest`, none of them is
    allowed: `cpus` are the allowed CPUs of the nearest NUMA nodes or domain.
    """

    cpus: CpuSet
    preferred: CpuSet
    near: CpuSet = EMPTY
    is_nearest: bool = False


def find_near(machine: Machine, device: Device) -> CpuSet:
    """Return the online CPUs that a device is near, allowed or not; empty if they are not known."""
    if device.cpus:
        return device.cpus & machine.online
    return union(node.cpus for node in machine.nodes if node.number == device.node)


def find_locality(machine: Machine, devices: Sequence[Device], allowed: CpuSet) -> DeviceLocality:
    """Return the locality of some devices together, among `allowed` CPUs.

    Devices that are near different CPUs have the smallest domain around all of these. A device that is near
    unknown CPUs does not count.
    """
    sets = [near for near in dict.fromkeys(find_near(machine, device) for device in devices) if near]
    if not sets:
        return DeviceLocality(cpus=allowed, preferred=allowed)
    near = sets[0] if len(sets) == 1 else find_common_domain(machine, union(sets))
    if not near.isdisjoint(allowed):
        cpus = near & allowed
        return DeviceLocality(cpus=cpus, preferred=union(sets) & cpus or cpus, near=near)
    nearest = _find_nearest(machine, near, allowed)
    return DeviceLocality(cpus=nearest, preferred=nearest, near=near, is_nearest=True)


def find_common_domain(machine: Machine, cpus: CpuSet) -> CpuSet:
    """Return the CPUs of the smallest domain that contains some CPUs; if there is none, all online CPUs."""
    around = (domain.cpus for domain in machine.domains if cpus <= domain.cpus)
    return min(around, key=len, default=machine.online)


def _find_nearest(machine: Machine, near: CpuSet, allowed: CpuSet) -> CpuSet:
    """Return the allowed CPUs of the nearest nodes, else of the smallest domain around that has some."""
    candidates = [node.number for node in machine.nodes if not node.cpus.isdisjoint(allowed)]
    found: dict[int, int] = {}
    for node in machine.nodes:
        if node.cpus.isdisjoint(near):
            continue
        for number, distance in find_closest(node, machine.nodes, candidates).items():
            found[number] = min(distance, found.get(number, distance))
    smallest = min(found.values(), default=None)
    nearest = [number for number, distance in found.items() if distance == smallest]
    if nearest:
        return union(node.cpus for node in machine.nodes if node.number in nearest) & allowed
    around = [domain.cpus & allowed for domain in machine.domains if near <= domain.cpus]
    return min(filter(None, around), key=len, default=allowed)


def measure_distance(machine: Machine, cpus: CpuSet, device: Device) -> int | None:
    """Return the largest NUMA distance of some CPUs from a device; None if CPUs or nodes are not known.

    10 is local. For a device near several nodes, the nearest of them counts.
    """
    near = find_near(machine, device)
    if not near:
        return None
    remote = cpus - near
    if not remote:
        return LOCAL_DISTANCE
    distances, near_nodes = [], {node.number for node in machine.nodes if not node.cpus.isdisjoint(near)}
    for node in machine.nodes:
        if not node.cpus.isdisjoint(remote):
            closest = find_closest(node, machine.nodes, near_nodes)
            is_near = node.number in near_nodes
            distances.append(LOCAL_DISTANCE if is_near else next(iter(closest.values()), REMOTE_DISTANCE))
    return max(distances, default=None)


_LISTED = 16  # how many devices a hint lists


def find_named_locality(machine: Machine, word: str) -> DeviceLocality:
    """Return the locality of the device that a word names, among the allowed CPUs.

    A word is a name ("gpu:0", "mlx5_0"), a PCI address with or without its domain, or the beginning of a
    UUID.
    """
    lower, devices = word.lower(), machine.devices
    by_address = [device for device in devices if device.address in (lower, f"0000:{lower}")]
    found = (
        [device for device in devices if word in (device.name, *device.names)]
        or by_address
        or [device for device in devices if lower and device.uuid.lower().startswith(lower)]
    )
    if not found:
        listed = ", ".join(f"{device} ({device.address})" for device in devices[:_LISTED])
        more = f" and {len(devices) - _LISTED} more" if len(devices) > _LISTED else ""
        hint = f"this machine has {listed}{more}"
        if not listed:
            hint = "no device of this machine is known; name CPUs with --mask"
        raise PlanError(f"--near {word}: this machine has no such device", hint=hint)
    names = ", ".join(map(str, found[:_LISTED]))
    if not by_address and len(found) > 1:
        message = f"--near {word}: several devices have this name ({names})"
        raise PlanError(message, hint="name one of them, or several, separated by commas")
    locality = find_locality(machine, found, machine.default_cpus)
    if not locality.near:
        message = f"--near {word}: the CPUs near {names} are not known"
        raise PlanError(message, hint="name CPUs with --mask")
    if locality.is_nearest and not locality.near.isdisjoint(machine.allowed):
        return find_locality(machine, found, machine.allowed)  # isolated CPUs: only a mask can name them
    return locality


def select_devices(machine: Machine, request: Request) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """Return the devices that decide the CPUs of ranks, and others: each rank gets the nearest of them.

    There are none if the request leaves this open and no GPU is visible. Network interfaces without RDMA
    count only if no other is visible.
    """
    visible = find_usable_devices(machine, request)
    gpus = tuple(device for device in visible.devices if device.kind is DeviceKind.GPU)
    if request.devices == "auto":
        return gpus, ()
    nics = tuple(device for device in visible.devices if device.kind is DeviceKind.NIC)
    nics = tuple(nic for nic in nics if has_rdma(nic)) or nics
    found = {DeviceKind.GPU: gpus, DeviceKind.NIC: nics}
    for kind in map(DeviceKind, request.devices):
        if not found[kind]:
            hint = "'ompbind topo' lists the devices of this machine; without --devices, ranks get none"
            raise PlanError(f"no {kind.label} is visible{render_reasons(kind, machine, request)}", hint=hint)
    if request.devices == (DeviceKind.NIC,):
        return nics, ()
    return gpus, nics if DeviceKind.NIC in request.devices else ()


def find_usable_devices(machine: Machine, request: Request) -> VisibleDevices:
    """Return the visible devices; a virtual function is one of them if its physical function is not."""
    visible = request.visible or find_visible_devices(machine.devices, {})
    addresses = {device.address for device in visible.devices}
    usable = tuple(device for device in visible.devices if device.physical not in addresses)
    return visible.replace(devices=usable)


def render_reasons(kind: DeviceKind, machine: Machine, request: Request) -> str:
    """Return why devices of a kind are not visible, as " (reason; reason)"; "" if no reason is known."""
    remarks = find_usable_devices(machine, request).remarks
    own = (device for device in machine.devices if device.kind is kind and device.excluded)
    excluded = (f"{device}: {device.excluded}" for device in own)
    reasons = "; ".join((*(remarks if kind is DeviceKind.GPU else ()), *excluded))
    return f" ({reasons})" if reasons else ""
