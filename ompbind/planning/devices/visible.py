"""Which devices ranks may get: the devices that are visible to the process that started ompbind.

The variables of the vendors (`CUDA_VISIBLE_DEVICES`, …), the launcher and the container limit what is
visible. This set is only ever narrowed for a rank, never widened.
"""

from collections.abc import Mapping, Sequence

from ompbind.machine.devices import AMD, INTEL, NVIDIA, Device, DeviceKind
from ompbind.planning.devices.cuda import CUDA_VISIBLE_DEVICES, find_cuda_devices
from ompbind.planning.devices.level_zero import ZE_AFFINITY_MASK, find_level_zero_devices
from ompbind.planning.devices.rocm import (
    GPU_DEVICE_ORDINAL,
    HIP_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    find_rocm_devices,
)
from ompbind.planning.devices.vendors import VendorDevices
from ompbind.planning.request import VisibleDevices

VENDOR_VARIABLES = (
    CUDA_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    GPU_DEVICE_ORDINAL,
    ZE_AFFINITY_MASK,
)
"""The variables of vendors that choose GPUs, and that a plan may set."""


def find_visible_devices(devices: Sequence[Device], env: Mapping[str, str]) -> VisibleDevices:
    """Return the devices of a machine that are visible with the environment of the caller."""
    gpus = [device for device in devices if device.kind is DeviceKind.GPU]
    found = [_find_of_vendor(gpus, vendor, env) for vendor in dict.fromkeys(gpu.vendor for gpu in gpus)]
    nics = [device for device in devices if device.kind is DeviceKind.NIC and not device.excluded]
    return VisibleDevices(
        devices=(*(gpu for each in found for gpu in each.devices), *nics),
        words=tuple(word for each in found for word in each.words),
        remarks=tuple(remark for each in found for remark in each.remarks),
    )


def _find_of_vendor(gpus: Sequence[Device], vendor: str, env: Mapping[str, str]) -> VendorDevices:
    own = [gpu for gpu in gpus if gpu.vendor == vendor]
    if vendor == NVIDIA:
        return find_cuda_devices(own, env)
    if vendor == AMD:
        alone = all(gpu.vendor != NVIDIA for gpu in gpus)
        return find_rocm_devices(own, env, alone=alone)
    if vendor == INTEL:
        return find_level_zero_devices(own, env)
    return VendorDevices(devices=tuple(gpu for gpu in own if not gpu.excluded))
