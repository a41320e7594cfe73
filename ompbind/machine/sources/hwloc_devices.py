"""GPUs, network interfaces and accelerators in hwloc XML."""

from xml.etree.ElementTree import Element

from ompbind.machine.devices import Device
from ompbind.machine.model import Machine


def parse_devices(tree: Element, machine: Machine) -> tuple[Device, ...]:
    """Return the devices in hwloc XML in device order, from the tree and the machine made from it."""
    return ()
