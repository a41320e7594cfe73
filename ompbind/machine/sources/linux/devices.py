"""GPUs, network interfaces and accelerators from `sys/bus/pci/devices`."""

from ompbind.machine.devices import Device
from ompbind.machine.model import Machine
from ompbind.machine.sources.filesystem import Root


def read_devices(root: Root, machine: Machine) -> tuple[Device, ...]:
    """Read the devices of a machine whose CPUs and NUMA nodes are known already, in device order."""
    return ()
