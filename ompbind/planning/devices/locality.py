"""Which CPUs are near a device, and how far the CPUs of a rank are from it.

A *locality* is the set of CPUs that a rank should get for its devices. It is never a guess: if the CPUs near
a device are not known, all CPUs are equally good, and NUMA node 0 is not preferred.
"""

from collections.abc import Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.machine.devices import Device
from ompbind.machine.model import Machine, Node
from ompbind.machine.nodes import find_closest
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

    @property
    def is_known(self) -> bool:
        """Whether the CPUs near the devices are known."""
        return bool(self.near)


def find_near(machine: Machine, device: Device) -> CpuSet:
    """Return the online CPUs that a device is near, allowed or not; empty if they are not known."""
    if device.cpus:
        return device.cpus & machine.online
    return union(node.cpus for node in machine.nodes if node.number == device.node)


def find_locality(machine: Machine, devices: Sequence[Device], allowed: CpuSet) -> DeviceLocality:
    """Return the locality of some devices together, among `allowed` CPUs.

    Devices that are near different CPUs have the CPUs of the smallest domain that contains all of these. A
    device that is near unknown CPUs does not count.
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
    """Return the allowed CPUs of the NUMA nodes that are nearest to some CPUs.

    Without known distances, return the allowed CPUs of the smallest domain around these CPUs that has some.
    """
    candidates = [node.number for node in machine.nodes if not node.cpus.isdisjoint(allowed)]
    found: dict[int, int] = {}
    for node in _find_nodes(machine, near):
        for number, distance in find_closest(node, machine.nodes, candidates).items():
            found[number] = min(distance, found.get(number, distance))
    smallest = min(found.values(), default=None)
    nearest = [number for number, distance in found.items() if distance == smallest]
    if nearest:
        return union(node.cpus for node in machine.nodes if node.number in nearest) & allowed
    around = [domain.cpus & allowed for domain in machine.domains if near <= domain.cpus]
    return min(filter(None, around), key=len, default=allowed)


def _find_nodes(machine: Machine, cpus: CpuSet) -> list[Node]:
    return [node for node in machine.nodes if not node.cpus.isdisjoint(cpus)]


def measure_distance(machine: Machine, cpus: CpuSet, device: Device) -> int | None:
    """Return the largest NUMA distance of some CPUs from a device; None if its CPUs are not known.

    10 is local. For a device near several nodes, the nearest of them counts.
    """
    near = find_near(machine, device)
    if not near:
        return None
    remote = cpus - near
    if not remote:
        return LOCAL_DISTANCE
    near_nodes = CpuSet(node.number for node in _find_nodes(machine, near))
    return max(_measure_nodes(machine, node, near_nodes) for node in _find_nodes(machine, remote))


def _measure_nodes(machine: Machine, node: Node, others: CpuSet) -> int:
    """Return the distance of a NUMA node from the nearest of some nodes, which have CPUs."""
    if node.number in others:
        return LOCAL_DISTANCE
    closest = find_closest(node, machine.nodes, others)
    return next(iter(closest.values()), REMOTE_DISTANCE)
