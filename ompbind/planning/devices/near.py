"""CPUs near the devices that a request names (--near)."""

from collections.abc import Iterable

from ompbind.cpuset import CpuSet, union
from ompbind.errors import PlanError
from ompbind.machine.devices import Device
from ompbind.machine.model import Machine
from ompbind.planning.devices.locality import DeviceLocality, find_locality
from ompbind.planning.occupancy import AvailableCpus

_LISTED = 16
"""How many devices a hint lists."""


def find_near_cpus(available: AvailableCpus, words: Iterable[str]) -> CpuSet:
    """Return the CPUs near some devices: those near any of them.

    If no CPU near a device is allowed, the nearest ones are returned. Raises PlanError for an unknown device,
    and for a device that is near unknown CPUs.
    """
    return union(find_named_locality(available.machine, word).cpus for word in words)


def find_named_locality(machine: Machine, word: str) -> DeviceLocality:
    """Return the locality of a device by one of its names, among the allowed CPUs; raises PlanError."""
    devices = find_named_devices(machine, word)
    locality = find_locality(machine, devices, machine.default_cpus)
    if not locality.is_known:
        message = f"--near {word}: the CPUs near {', '.join(map(str, devices))} are not known"
        raise PlanError(message, hint="name CPUs with --mask")
    if locality.is_nearest and not locality.near.isdisjoint(machine.allowed):
        return find_locality(machine, devices, machine.allowed)  # isolated CPUs: only a mask can name them
    return locality


def find_named_devices(machine: Machine, word: str) -> tuple[Device, ...]:
    """Return the device that a word names: all partitions, if it is the address of several.

    A word is a name ("gpu:0", "mlx5_0"), a PCI address with or without its domain, or the beginning of a
    UUID. Raises PlanError if it names no device or several.
    """
    lower = word.lower()
    by_name = [device for device in machine.devices if word in (device.name, *device.names)]
    by_address = [device for device in machine.devices if device.address in (lower, f"0000:{lower}")]
    by_uuid = [device for device in machine.devices if lower and device.uuid.lower().startswith(lower)]
    found = by_name or by_address or by_uuid
    if not found:
        raise PlanError(f"--near {word}: this machine has no such device", hint=_list_devices(machine))
    if not by_address and len(found) > 1:
        names = ", ".join(map(str, found[:_LISTED]))
        message = f"--near {word}: several devices have this name ({names})"
        raise PlanError(message, hint="name one of them, or several, separated by commas")
    return tuple(found)


def _list_devices(machine: Machine) -> str:
    """Return the hint with the names of devices."""
    if not machine.devices:
        return "no device of this machine is known; name CPUs with --mask"
    listed = ", ".join(f"{device} ({device.address})" for device in machine.devices[:_LISTED])
    more = len(machine.devices) - _LISTED
    return f"this machine has {listed}{f' and {more} more' if more > 0 else ''}"
