"""Which devices ranks may get: the devices that are visible to the process that started ompbind.

The variables of the vendors (`CUDA_VISIBLE_DEVICES`, …), the launcher and the container limit what is
visible. This set is only ever narrowed for a rank, never widened.
"""

from collections.abc import Mapping, Sequence

from ompbind.machine.devices import AMD, INTEL, NVIDIA, Device, DeviceKind
from ompbind.planning.devices.cuda import CUDA_VISIBLE_DEVICES, find_cuda_devices
from ompbind.planning.devices.rocm import (
    GPU_DEVICE_ORDINAL,
    HIP_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    find_rocm_devices,
)
from ompbind.planning.devices.vendors import find_order, read_index, split_words
from ompbind.planning.request import DeviceWord, VisibleDevices

# Which Intel GPUs are visible: the rules of `ZE_AFFINITY_MASK`.
#
# Source: "Affinity Mask" and "Device Hierarchy" in the programming guide of the Level Zero specification.
# The mask is a filter: its order has no meaning, and an empty mask hides nothing. Its numbers count whole
# GPUs (`ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE`), or else all tiles of all GPUs.


ZE_AFFINITY_MASK = "ZE_AFFINITY_MASK"
_HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"
_WITH_TILES = ("0bd", "0b6")
"""Beginnings of product numbers of the Data Center GPU Max series, which has 1 or 2 tiles."""


def find_level_zero_devices(gpus: Sequence[Device], env: Mapping[str, str]) -> VisibleDevices:
    """Return the Intel GPUs of a machine that are visible with an environment."""
    accessible = tuple(gpu for gpu in gpus if not gpu.excluded)
    text = env.get(ZE_AFFINITY_MASK, "").strip()
    counts_tiles = env.get(_HIERARCHY, "").upper() != "COMPOSITE"
    has_tiles = any(gpu.product.startswith(_WITH_TILES) for gpu in accessible)
    order = None if counts_tiles and has_tiles else find_order(accessible)
    if order is None:
        hint = f"set {_HIERARCHY}=COMPOSITE, which counts whole GPUs"
        remark = f"{ZE_AFFINITY_MASK}: the numbers of the GPUs are not known ({hint})"
        return VisibleDevices(devices=() if text else accessible, remarks=(remark,))
    words = {gpu.name: str(index) for index, gpu in enumerate(order)}
    if text:  # items of the mask such as "1.0" name a tile
        items = list(dict.fromkeys(split_words(text)))
        named_by = [
            [item for item in items if read_index(item.partition(".")[0]) == i] for i in range(len(order))
        ]
        words = {gpu.name: ",".join(own) for gpu, own in zip(order, named_by, strict=True) if own}
    found = tuple(gpu for gpu in accessible if gpu.name in words)
    hidden = [gpu.name for gpu in accessible if gpu.name not in words]
    remarks = (f"{ZE_AFFINITY_MASK}={text} does not include {', '.join(hidden)}",) if hidden else ()
    named = tuple(
        DeviceWord(device=gpu.name, variable=ZE_AFFINITY_MASK, word=words[gpu.name]) for gpu in found
    )
    return VisibleDevices(devices=found, words=named, remarks=remarks)


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
    found = []
    for vendor in dict.fromkeys(gpu.vendor for gpu in gpus):
        own = [gpu for gpu in gpus if gpu.vendor == vendor]
        if vendor == NVIDIA:
            found.append(find_cuda_devices(own, env))
        elif vendor == AMD:
            found.append(find_rocm_devices(own, env, alone=all(gpu.vendor != NVIDIA for gpu in gpus)))
        elif vendor == INTEL:
            found.append(find_level_zero_devices(own, env))
        else:
            found.append(VisibleDevices(devices=tuple(gpu for gpu in own if not gpu.excluded)))
    nics = [device for device in devices if device.kind is DeviceKind.NIC and not device.excluded]
    return VisibleDevices(
        devices=(*(gpu for each in found for gpu in each.devices), *nics),
        words=tuple(word for each in found for word in each.words),
        remarks=tuple(remark for each in found for remark in each.remarks),
    )
