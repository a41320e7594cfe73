"""Devices as values: GPUs, network interfaces and accelerators, and the CPUs that they are near.

A *device* is one PCI function, or a partition of a GPU that shares its PCI function with other partitions.
It is *near* the CPUs from which its memory and registers are reached without crossing to another NUMA node.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.record import Record
from ompbind.text import whole_number


class DeviceKind(StrEnum):
    """What a device is for.

    A display is a graphics function that no program computes on. An accelerator is another computing device
    than a GPU: no variable exists that gives one to a rank.
    """

    GPU = "gpu"
    NIC = "nic"
    ACCELERATOR = "accelerator"
    DISPLAY = "display"

    @property
    def label(self) -> str:
        """The kind for messages: "GPU", "NIC", "accelerator"."""
        return self.value.upper() if len(self.value) == 3 else self.value


class Device(Record):
    """One device. `index` is its number among the devices of its kind on the machine, in device order.

    - `address`: the address of its PCI function, as "0000:06:00.0"; domains have 4 to 8 digits
    - `partition`: its number among the partitions of this PCI function, None if it is the whole function
    - `pci_class`, `vendor`, `product`: PCI numbers in 4 hexadecimal digits, "" if unknown
    - `cpus`: the online CPUs that it is near; empty if that is not known
    - `node`: the NUMA node that it is near; None if that is not known
    - `names`: what drivers call it, as "card0", "renderD128", "mlx5_0", "eth0"
    - `rdma_names`: the names that RDMA libraries use, as "mlx5_0"; `names` has them, too
    - `uuid`: the identifier that variables of its vendor accept, as "GPU-46f77619-…"; "" if unknown
    - `ordinal`: its number in the vendor's own order (cuda0, rsmi0, KFD), None if unknown
    - `physical`: for a virtual function the address of its physical function, else ""
    - `excluded`: why no rank gets it, although it is of a kind that ranks get; "" if ranks can get it
    """

    kind: DeviceKind
    index: int
    address: str
    partition: int | None = None
    pci_class: str = ""
    vendor: str = ""
    product: str = ""
    cpus: CpuSet = EMPTY
    node: int | None = None
    names: tuple[str, ...] = ()
    rdma_names: tuple[str, ...] = ()
    uuid: str = ""
    ordinal: int | None = None
    physical: str = ""
    excluded: str = ""

    @property
    def name(self) -> str:
        """The name in options and messages: "gpu:0", "nic:2"."""
        return f"{self.kind}:{self.index}"

    def __str__(self) -> str:
        return self.name


def is_address(text: str) -> bool:
    """Return whether a text is the address of a PCI function, like "0000:06:00.0" or "10000000:06:00.0"."""
    head, _, function = text.rpartition(".")
    parts = (*head.split(":"), function)
    first, *others = map(len, parts)
    return 4 <= first <= 8 and others == [2, 2, 1] and all(map(is_hexadecimal, parts))


def is_hexadecimal(text: str) -> bool:
    """Return whether a text has only hexadecimal digits, in lower case."""
    return not text.strip("0123456789abcdef")


def number_devices(found: Iterable[Device]) -> tuple[Device, ...]:
    """Return the devices in device order, with `index` set; the given values of `index` do not count.

    Device order is the vendor's own order where it is known, else the order of PCI addresses. Vendors follow
    each other by their first address. A UUID that several devices have is dropped: it identifies none.
    """
    devices = list(sort_by_address(found))
    vendors = list(dict.fromkeys(device.vendor for device in devices))
    devices.sort(key=lambda each: (vendors.index(each.vendor), each.ordinal is None, each.ordinal or 0))
    uuids = Counter(device.uuid for device in devices)
    numbered = []
    for kind in DeviceKind:
        for index, device in enumerate(device for device in devices if device.kind is kind):
            uuid = device.uuid if uuids[device.uuid] == 1 else ""
            numbered.append(device.replace(index=index, uuid=uuid))
    return tuple(numbered)


def sort_by_address(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return devices in the order of their PCI addresses, and of their partitions."""

    def key(device: Device) -> tuple[list[int], int]:
        numbers = device.address.replace(".", ":").split(":")
        return [int(number, 16) for number in numbers], -1 if device.partition is None else device.partition

    return tuple(sorted(devices, key=key))


NVIDIA, AMD, INTEL = "10de", "1002", "8086"  # numbers of PCI vendors, in 4 hexadecimal digits

_NETWORK, _GRAPHICS, _PROCESSING = "02", "03", "12"
_CO_PROCESSOR, _INFINIBAND = "0b40", "0c06"
CLASSES = (_NETWORK, _GRAPHICS, _PROCESSING, _CO_PROCESSOR, _INFINIBAND)
"""Beginnings of the classes of PCI functions that may be devices."""

_INFINIBAND_NETWORK, _CRAY = "0207", "17db"
"""The class of interfaces for InfiniBand, and the vendor of Slingshot: for RDMA, under any name."""

_COMPUTES = ("0302", "0380")  # graphics functions without a display: GPUs of servers
_PROGRAMS_COMPUTE_ON = ("cuda", "nvml", "rsmi", "ze", "opencl", "renderD", "nvidia")
"""Beginnings of the names of devices that programs compute on: of hwloc, DRM, and NVIDIA's driver."""

_ORDINAL_NAMES = ("cuda", "rsmi", "nvml", "ze")  # numbered in the order of the vendor, of its variables first


def find_kind(
    pci_class: str, vendor: str, names: Iterable[str] = (), *, is_driven: bool = False
) -> DeviceKind | None:
    """Return the kind of a PCI function; None if it is no device that ompbind knows.

    `is_driven` says that a driver for computing uses it, although none of its `names` shows that.
    """
    base = pci_class[:2]
    if base == _NETWORK or pci_class == _INFINIBAND:
        return DeviceKind.NIC if any(names) else None
    computes = is_driven or any(name.startswith(_PROGRAMS_COMPUTE_ON) for name in names)
    if base == _GRAPHICS:
        is_gpu = computes or (vendor in (NVIDIA, AMD, INTEL) and pci_class in _COMPUTES)
        return DeviceKind.GPU if is_gpu else DeviceKind.DISPLAY
    if base == _PROCESSING:
        is_gpu = vendor == AMD or (vendor == NVIDIA and computes)
        return DeviceKind.GPU if is_gpu else DeviceKind.ACCELERATOR
    return DeviceKind.ACCELERATOR if pci_class == _CO_PROCESSOR else None


def find_ordinal(names: Iterable[str]) -> int | None:
    """Return the number of a device in the vendor's own order, from a name like "cuda3"; None if unknown."""
    pairs = ((name, name.rstrip("0123456789")) for name in reversed([*names]))  # the first of a stem counts
    numbers = {stem: whole_number(name[len(stem) :]) for name, stem in pairs if stem != name}
    return next((numbers[stem] for stem in _ORDINAL_NAMES if stem in numbers), None)


def has_rdma(nic: Device) -> bool:
    """Return whether a network interface is for RDMA, by a name for RDMA, its class or its vendor."""
    return bool(nic.rdma_names) or nic.pci_class == _INFINIBAND_NETWORK or nic.vendor == _CRAY
