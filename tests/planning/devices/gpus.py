"""GPUs and network interfaces of made-up machines."""

from ompbind.cpuset import CpuSet
from ompbind.machine.devices import AMD, INTEL, NVIDIA, Device, DeviceKind, number_devices

UUIDS = tuple(f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "456789ab")
"""UUIDs of NVIDIA's GPUs."""

ROCM_UUIDS = tuple(f"GPU-{digit * 16}" for digit in "456789ab")


def make_gpu(number, vendor=NVIDIA, **fields):
    """A GPU at the PCI bus of a number, near the CPUs of a NUMA node of 4 CPUs."""
    address, near = f"0000:{number + 1:02x}:00.0", CpuSet(range(4 * number, 4 * number + 4))
    values = {"address": address, "pci_class": "0302", "product": "2330", "node": number, "cpus": near}
    return Device(kind=DeviceKind.GPU, index=number, vendor=vendor, **{**values, **fields})


def make_nvidia_gpus(count=4, *, with_uuids=True, **fields):
    uuids = UUIDS if with_uuids else [""] * count
    return number_devices(make_gpu(i, uuid=uuids[i], **fields) for i in range(count))


def make_amd_gpus(count=4, *, with_uuids=True, **fields):
    uuids = ROCM_UUIDS if with_uuids else [""] * count
    return number_devices(make_gpu(i, AMD, ordinal=i, uuid=uuids[i], **fields) for i in range(count))


def make_intel_gpus(count=4, **fields):
    return number_devices(make_gpu(i, INTEL, **{"product": "e20b", **fields}) for i in range(count))


def make_nic(number, rdma="", network=""):
    return Device(
        kind=DeviceKind.NIC, index=number, address=f"0000:{number + 65:02x}:00.0", vendor="15b3",
        pci_class="0207" if rdma else "0200", names=tuple(filter(None, (rdma, network))),
        rdma_names=(rdma,) if rdma else (),
    )  # fmt: skip
