"""Devices as values: GPUs, network interfaces and accelerators, and the CPUs that they are near.

A *device* is one PCI function, or a partition of a GPU that shares its PCI function with other partitions.
It is *near* the CPUs from which its memory and registers are reached without crossing to another NUMA node.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.record import Record


class DeviceKind(StrEnum):
    """What a device is for.

    A display is a graphics function that no program computes on, like that of a management controller. An
    accelerator is another computing device than a GPU: no variable exists that gives one to a rank.
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


_HEXADECIMAL = frozenset("0123456789abcdef")


def is_address(text: str) -> bool:
    """Return whether a text is the address of a PCI function, like "0000:06:00.0" or "10000000:06:00.0"."""
    head, _, function = text.rpartition(".")
    domain, *rest = head.split(":")
    has_shape = 4 <= len(domain) <= 8 and [len(part) for part in (*rest, function)] == [2, 2, 1]
    return has_shape and all(map(is_hexadecimal, (domain, *rest, function)))


def is_hexadecimal(text: str) -> bool:
    """Return whether a text has only hexadecimal digits, in lower case."""
    return _HEXADECIMAL.issuperset(text)


def number_devices(found: Iterable[Device]) -> tuple[Device, ...]:
    """Return the devices in device order, with `index` set; the given values of `index` do not count.

    Device order is the vendor's own order where it is known, else the order of PCI addresses. Vendors follow
    each other by their first address. A UUID that several devices have is dropped: it identifies none.
    """
    devices = sorted(_drop_repeated_uuids(list(found)), key=_by_address)
    vendors = {device.vendor: number for number, device in reversed(list(enumerate(devices)))}
    devices.sort(key=lambda device: (vendors[device.vendor], *_by_ordinal(device)))
    numbers = dict.fromkeys(DeviceKind, 0)
    numbered = []
    for device in sorted(devices, key=lambda device: list(DeviceKind).index(device.kind)):
        numbered.append(device.replace(index=numbers[device.kind]))
        numbers[device.kind] += 1
    return tuple(numbered)


def sort_by_address(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return devices in the order of their PCI addresses, and of their partitions."""
    return tuple(sorted(devices, key=_by_address))


def _drop_repeated_uuids(devices: Sequence[Device]) -> Iterator[Device]:
    seen, repeated = set[str](), set[str]()
    for device in devices:
        (repeated if device.uuid in seen else seen).add(device.uuid)
    for device in devices:
        yield device.replace(uuid="") if device.uuid in repeated else device


def _by_ordinal(device: Device) -> tuple[bool, int]:
    return device.ordinal is None, device.ordinal or 0


def _by_address(device: Device) -> tuple[tuple[int, ...], int]:
    """Sort by PCI address: domain, bus, device and function are hexadecimal numbers."""
    parts = device.address.replace(".", ":").split(":")
    return tuple(int(part, 16) for part in parts), -1 if device.partition is None else device.partition
