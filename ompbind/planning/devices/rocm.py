"""Which AMD GPUs are visible: the rules of `ROCR_VISIBLE_DEVICES` and of the variables that count after it.

Sources: "GPU isolation techniques" in the documentation of ROCm; ROCR-Runtime, `amd_filter_device.cpp`
(prefixes of UUIDs in any case, an invalid or repeated item hides all after it, an empty value hides all);
clr, `rocdevice.cpp` (`HIP_VISIBLE_DEVICES`, else `CUDA_VISIBLE_DEVICES`, for HIP and `GPU_DEVICE_ORDINAL`
for OpenCL count what ROCR_VISIBLE_DEVICES has left; an invalid item hides all after it, an empty value hides
none).
"""

from collections.abc import Mapping, Sequence

from ompbind.machine.devices import Device, sort_by_address
from ompbind.planning.devices.cuda import CUDA_VISIBLE_DEVICES
from ompbind.planning.devices.vendors import (
    find_all,
    find_order,
    find_unique_uuids,
    make_words,
    narrow_to_slurm,
    read_index,
    split_words,
)
from ompbind.planning.request import VisibleDevices

ROCR_VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES"
HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES"
GPU_DEVICE_ORDINAL = "GPU_DEVICE_ORDINAL"
_UUID_HINT = "name GPUs by their UUIDs, which rocminfo shows"
_UUID_LENGTH = 20
"""Characters of "GPU-" and 16 hexadecimal digits."""


def find_rocm_devices(
    gpus: Sequence[Device], env: Mapping[str, str], *, alone: bool = True
) -> VisibleDevices:
    """Return the AMD GPUs of a machine that are visible with an environment.

    CUDA_VISIBLE_DEVICES counts only if they are `alone`: there are no NVIDIA GPUs that it could mean.
    """
    accessible = tuple(gpu for gpu in gpus if not gpu.excluded)
    text = env.get(ROCR_VISIBLE_DEVICES)
    slurm = narrow_to_slurm(accessible, find_order(accessible) or sort_by_address(accessible), text, env)
    order = find_order(slurm.devices)
    if text is None:
        found = find_all(slurm.devices, order, ROCR_VISIBLE_DEVICES, _UUID_HINT)
    else:
        found = _find_named(slurm.devices, order, text)
    counted = _select_effective(env, alone=alone)
    if counted and found.devices:
        later = _count(found.devices if text is not None else order, counted, env)
        found = later.replace(remarks=found.remarks + later.remarks)
    return found.replace(remarks=slurm.remarks + found.remarks)


def _find_named(gpus: tuple[Device, ...], order: tuple[Device, ...] | None, text: str) -> VisibleDevices:
    """Return the GPUs that ROCR_VISIBLE_DEVICES names, in its order."""
    found: list[Device] = []
    words = split_words(text)
    where = f"{ROCR_VISIBLE_DEVICES}={text}"
    for word in words:
        if order is None and read_index(word) is not None:
            remark = f"{where}: which GPU has index {word} is not known ({_UUID_HINT})"
            return VisibleDevices(remarks=(remark,))
        gpu = _match(gpus, order or (), word)
        if gpu is None or gpu in found:
            break
        found.append(gpu)
    uuids = find_unique_uuids(gpus)
    pairs = [(gpu.name, uuids.get(gpu.name, word)) for gpu, word in zip(found, words, strict=False)]
    rest = ",".join(words[len(found) :])
    remarks = (f"{where}: ROCm ignores '{rest}', as its first item is invalid or repeated",) if rest else ()
    remarks = remarks if words else (f"{ROCR_VISIBLE_DEVICES} is empty: it hides all AMD GPUs",)
    named = make_words(ROCR_VISIBLE_DEVICES, pairs)
    return VisibleDevices(devices=tuple(found), words=named, remarks=remarks)


def _match(gpus: Sequence[Device], order: Sequence[Device], word: str) -> Device | None:
    """Return the GPU that an item names, by index or by the prefix of a UUID; None if it is invalid."""
    index = read_index(word)
    if index is not None:
        return order[index] if index < len(order) else None
    prefix = word.upper()
    if not prefix.startswith("GPU-") or not len("GPU-") < len(prefix) <= _UUID_LENGTH:
        return None
    found = [gpu for gpu in gpus if gpu.uuid.upper().startswith(prefix)]
    return found[0] if len(found) == 1 else None


def _select_effective(env: Mapping[str, str], *, alone: bool) -> list[str]:
    """Return the set variables with positions among the GPUs that ROCR_VISIBLE_DEVICES has left."""
    for_hip = [HIP_VISIBLE_DEVICES, *([CUDA_VISIBLE_DEVICES] if alone else [])]
    hip = next((name for name in for_hip if env.get(name)), None)
    has_same_numbers = env.get(GPU_DEVICE_ORDINAL) == env.get(ROCR_VISIBLE_DEVICES)  # Slurm sets both
    opencl = None if has_same_numbers else GPU_DEVICE_ORDINAL
    return [name for name in (hip, opencl) if name and env.get(name)]


def _count(
    left: tuple[Device, ...] | None, variables: Sequence[str], env: Mapping[str, str]
) -> VisibleDevices:
    """Return the GPUs that all of these variables name, in the order of the first.

    A rank gets the words of these variables: ROCR_VISIBLE_DEVICES stays, as their positions count in it. HIP
    does not read GPU_DEVICE_ORDINAL; its words are written to HIP_VISIBLE_DEVICES too where this is not set.
    """
    if left is None:
        where = f"{variables[0]}={env[variables[0]]}"
        return VisibleDevices(remarks=(f"{where}: the order of the GPUs is not known (set {_ROCR_INSTEAD})",))
    named = {name: _name_positions(left, env[name]) for name in variables}
    devices = tuple(gpu for gpu in named[variables[0]] if all(gpu in words for words in named.values()))
    for_hip = {HIP_VISIBLE_DEVICES: named[GPU_DEVICE_ORDINAL]} if variables == [GPU_DEVICE_ORDINAL] else {}
    words = [
        word
        for name, items in {**for_hip, **named}.items()
        for word in make_words(name, [(gpu.name, item) for gpu, item in items.items() if gpu in devices])
    ]
    hidden = [gpu.name for gpu in left if gpu not in devices]
    values = ", ".join(f"{name}={env[name]}" for name in variables)
    rule = f"; it counts the GPUs that {ROCR_VISIBLE_DEVICES} leaves" if ROCR_VISIBLE_DEVICES in env else ""
    remarks = (f"{values} does not include {', '.join(hidden)}{rule}",) if hidden else ()
    return VisibleDevices(devices=devices, words=tuple(words), remarks=remarks)


_ROCR_INSTEAD = "ROCR_VISIBLE_DEVICES to UUIDs, which rocminfo shows"


def _name_positions(left: Sequence[Device], text: str) -> dict[Device, str]:
    """Return the items of a variable by the GPUs that they name; an invalid item hides all after it."""
    found: dict[Device, str] = {}
    for word in split_words(text):
        gpu = _match(left, left, word)
        if gpu is None:
            break
        found.setdefault(gpu, word)
    return found
