"""The kind of a PCI function: one rule for every topology source."""

from collections.abc import Iterable

from ompbind.machine.devices import Device, DeviceKind

NVIDIA, AMD, INTEL = "10de", "1002", "8086"
"""Numbers of PCI vendors, in 4 hexadecimal digits."""

_GPU_VENDORS = (NVIDIA, AMD, INTEL)

_NETWORK, _GRAPHICS, _PROCESSING = "02", "03", "12"
_CO_PROCESSOR, _INFINIBAND = "0b40", "0c06"
CLASSES = (_NETWORK, _GRAPHICS, _PROCESSING, _CO_PROCESSOR, _INFINIBAND)
"""Beginnings of the classes of PCI functions that may be devices."""

_INFINIBAND_NETWORK, _CRAY = "0207", "17db"
"""The class of interfaces for InfiniBand, and the vendor of Slingshot: for RDMA, under any name."""

_COMPUTES = ("0302", "0380")
"""Classes of graphics functions without a display: GPUs of servers, if a vendor of GPUs makes them."""

_PROGRAMS_COMPUTE_ON = ("cuda", "nvml", "rsmi", "ze", "opencl", "renderD", "nvidia")
"""Beginnings of the names of devices that programs compute on: of hwloc, DRM, and NVIDIA's driver."""

_ORDINAL_NAMES = ("cuda", "rsmi", "nvml", "ze")
"""Names whose number is in the vendor's own order, the order of the vendor's variables first."""


def find_kind(
    pci_class: str, vendor: str, names: Iterable[str] = (), *, is_driven: bool = False
) -> DeviceKind | None:
    """Return the kind of a PCI function; None if it is no device that ompbind knows.

    `pci_class` and `vendor` have 4 hexadecimal digits in lower case. `names` are what drivers call it.
    `is_driven` says that a driver for computing uses it, although none of its names shows that.
    """
    base = pci_class[:2]
    if base == _NETWORK or pci_class == _INFINIBAND:
        return DeviceKind.NIC if any(names) else None
    computes = is_driven or any(name.startswith(_PROGRAMS_COMPUTE_ON) for name in names)
    if base == _GRAPHICS:
        is_gpu = computes or (vendor in _GPU_VENDORS and pci_class in _COMPUTES)
        return DeviceKind.GPU if is_gpu else DeviceKind.DISPLAY
    if base == _PROCESSING:
        is_gpu = vendor == AMD or (vendor == NVIDIA and computes)
        return DeviceKind.GPU if is_gpu else DeviceKind.ACCELERATOR
    return DeviceKind.ACCELERATOR if pci_class == _CO_PROCESSOR else None


def find_ordinal(names: Iterable[str]) -> int | None:
    """Return the number of a device in the vendor's own order, from a name like "cuda3"; None if unknown."""
    numbers = dict[str, int]()
    for name in names:
        stem = name.rstrip("0123456789")
        if stem != name and name[len(stem) :].isascii():
            numbers.setdefault(stem, int(name[len(stem) :][:9]))
    return next((numbers[stem] for stem in _ORDINAL_NAMES if stem in numbers), None)


def has_rdma(nic: Device) -> bool:
    """Return whether a network interface is for RDMA, by a name for RDMA, its class or its vendor."""
    return bool(nic.rdma_names) or nic.pci_class == _INFINIBAND_NETWORK or nic.vendor == _CRAY
