"""Which devices ranks may get: the devices that are visible to the process that started ompbind.

The variables of the vendors (`CUDA_VISIBLE_DEVICES`, …), the launcher and the container limit what is
visible. This set is only ever narrowed for a rank, never widened. Sources of the rules:

- NVIDIA: "CUDA Environment Variables" in the CUDA Programming Guide (indices, prefixes of UUIDs, an invalid
  item hides all after it, an empty value hides all); `torch/cuda/__init__.py` (a repeated item hides all,
  items of another form than the first hide all after them); "Specialized Configurations" in the guide of the
  NVIDIA Container Toolkit (`NVIDIA_VISIBLE_DEVICES`).
- AMD: "GPU isolation techniques" in the documentation of ROCm; ROCR-Runtime, `amd_filter_device.cpp`
  (prefixes of UUIDs in any case, an invalid or repeated item hides all after it, an empty value hides all);
  clr, `rocdevice.cpp` (`HIP_VISIBLE_DEVICES`, else `CUDA_VISIBLE_DEVICES`, for HIP and `GPU_DEVICE_ORDINAL`
  for OpenCL count what ROCR_VISIBLE_DEVICES has left; an invalid item hides all after it, an empty value
  hides none).
- Intel: "Affinity Mask" and "Device Hierarchy" in the programming guide of the Level Zero specification. The
  mask is a filter: its order has no meaning, and an empty mask hides nothing. Its numbers count whole GPUs
  (`ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE`), or else all tiles of all GPUs.
"""

from collections.abc import Iterable, Mapping, Sequence

from ompbind.machine.devices import AMD, INTEL, NVIDIA, Device, DeviceKind, sort_by_address
from ompbind.planning.request import DeviceWord, VisibleDevices
from ompbind.text import whole_number

Devices = tuple[Device, ...]
Env = Mapping[str, str]

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
ROCR_VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES"
HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES"
GPU_DEVICE_ORDINAL = "GPU_DEVICE_ORDINAL"
ZE_AFFINITY_MASK = "ZE_AFFINITY_MASK"

VENDOR_VARIABLES = (
    CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, GPU_DEVICE_ORDINAL, ZE_AFFINITY_MASK,
)  # fmt: skip
"""The variables of vendors that choose GPUs, and that a plan may set."""


def find_visible_devices(devices: Sequence[Device], env: Env) -> VisibleDevices:
    """Return the devices that are visible with the environment of the caller, for `Request.visible`."""
    gpus = [device for device in devices if device.kind is DeviceKind.GPU]
    found = []
    for vendor in dict.fromkeys(gpu.vendor for gpu in gpus):
        own = [gpu for gpu in gpus if gpu.vendor == vendor]
        accessible = tuple(gpu for gpu in own if not gpu.excluded)
        if vendor == NVIDIA:
            found.append(_find_cuda_devices(own, accessible, env))
        elif vendor == AMD:
            found.append(_find_rocm_devices(accessible, env, alone=all(gpu.vendor != NVIDIA for gpu in gpus)))
        elif vendor == INTEL:
            found.append(_find_level_zero_devices(accessible, env))
        else:
            found.append(VisibleDevices(devices=accessible))
    nics = (device for device in devices if device.kind is DeviceKind.NIC and not device.excluded)
    return VisibleDevices(
        devices=(*(gpu for each in found for gpu in each.devices), *nics),
        words=tuple(word for each in found for word in each.words),
        remarks=tuple(remark for each in found for remark in each.remarks),
    )


# Rules that all vendors have in common.


def _split_words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")] if text.strip() else []


def _are_of_one_product(devices: Sequence[Device]) -> bool:
    products = {device.product for device in devices}
    return len(devices) < 2 or (len(products) == 1 and "" not in products)


def _find_order(devices: Devices) -> Devices | None:
    """Return devices in the order of `ordinal`, or of addresses if all are of one product; or None."""
    ordinals = [device.ordinal for device in devices]
    if None not in ordinals and len(set(ordinals)) == len(ordinals):
        return tuple(sorted(devices, key=lambda device: device.ordinal or 0))
    return devices if _are_of_one_product(devices) else None


def _find_uuids(devices: Sequence[Device]) -> dict[str, str]:
    """Return the UUID of each device by its name; {} unless all devices have UUIDs that differ."""
    uuids = {device.name: device.uuid for device in devices}
    distinct = {uuid.lower() for uuid in uuids.values() if uuid}
    return uuids if len(distinct) == len(devices) else {}


def _make_words(variable: str, words: Iterable[tuple[Device, str]]) -> tuple[DeviceWord, ...]:
    return tuple(DeviceWord(device=device.name, variable=variable, word=word) for device, word in words)


def _hide_all(variable: str, value: str, reason: str) -> VisibleDevices:
    return VisibleDevices(remarks=(f"{variable}={value}: {reason}",))


def _match(gpus: Sequence[Device], order: Sequence[Device], word: str) -> Device | None:
    """Return the GPU that an item names, by index or by the beginning of its UUID; None if it is invalid."""
    index = whole_number(word)
    if index is not None:
        return order[index] if index < len(order) else None
    if gpus and gpus[0].vendor == AMD:
        word = word.upper()
        is_prefix = word.startswith("GPU-") and 4 < len(word) <= 20
        found = [gpu for gpu in gpus if is_prefix and gpu.uuid.upper().startswith(word)]
    else:
        found = [gpu for gpu in gpus if _get_form(word) and gpu.uuid.startswith(word)]
    return found[0] if len(found) == 1 else None


def _get_form(word: str) -> str:
    return word[:4] if word.startswith(("GPU-", "MIG-")) else ""


def _find_all(gpus: Devices, order: Devices | None, variable: str, hint: str) -> VisibleDevices:
    """Return all GPUs where their variable is not set: it gets UUIDs, or indices if their order is known."""
    uuids = _find_uuids(gpus)
    words = [(gpu, uuids[gpu.name]) for gpu in gpus] if uuids else []
    if not uuids and order is not None:
        words = [(gpu, str(index)) for index, gpu in enumerate(order)]
    unknown = "neither the UUIDs of the GPUs nor the order of their indices are known"
    remarks = (f"ranks get no {variable}: {unknown} ({hint})",) if gpus and not words else ()
    return VisibleDevices(devices=gpus, words=_make_words(variable, words), remarks=remarks)


def _narrow_to_slurm(
    devices: Devices, numbered: Sequence[Device], text: str | None, env: Env
) -> tuple[Devices, tuple[str, ...]]:
    """Return the devices of the Slurm job, where more than these are accessible as far as is known; a remark.

    `numbered` are the devices in the order of Slurm's numbers, which count the GPUs of the whole node. `text`
    is the value of the vendor's variable, None if it is not set. With ConstrainDevices in cgroup.conf, `text`
    counts the devices of the job only; otherwise it has the same numbers as Slurm's variables.
    """
    variable = next((name for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS") if env.get(name)), "")
    numbers = [whole_number(word) for word in _split_words(env.get(variable, ""))]
    given = [device for number, device in enumerate(numbered) if number in numbers]
    if None in numbers or not given or len(given) != len(numbers) or len(given) == len(devices):
        return devices, ()
    indices = {whole_number(word) for word in _split_words(text or "")}
    if text is not None and (None in indices or indices <= set(numbers)):
        return devices, ()
    remark = f"{variable}={env[variable]}: only {', '.join(map(str, given))} belong to this job"
    return tuple(device for device in devices if device in given), (remark,)


# NVIDIA

_CONTAINER = "NVIDIA_VISIBLE_DEVICES"


def _find_cuda_devices(gpus: Sequence[Device], accessible: Devices, env: Env) -> VisibleDevices:
    """Return the visible GPUs among the accessible ones; `gpus` are all, which indices of a container count.

    An item that names no GPU of this machine is ignored in a container: the device files decide.
    """
    remarks: tuple[str, ...] = ()
    container, text = env.get(_CONTAINER, "").strip(), env.get(CUDA_VISIBLE_DEVICES)
    if container not in ("", "all", "void"):
        words = [] if container == "none" else _split_words(container)
        named = [_match(gpus, sort_by_address(gpus), word) for word in words]
        hidden = [] if None in named else [gpu for gpu in accessible if gpu not in named]
        if hidden:
            remarks = (f"{_CONTAINER}={container} does not include {', '.join(map(str, hidden))}",)
            accessible = tuple(gpu for gpu in accessible if gpu not in hidden)
    own, of_slurm = _narrow_to_slurm(accessible, sort_by_address(accessible), text, env)
    order = _find_cuda_order(own, env)
    found = _find_all_cuda(own, order) if text is None else _find_named_cuda(own, order, text)
    return found.replace(remarks=remarks + of_slurm + found.remarks)


def _find_cuda_order(gpus: Sequence[Device], env: Env) -> Devices | None:
    """Return GPUs in the order of CUDA's indices; None if that is not known.

    Without CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA puts the fastest GPU first: then the order is known for GPUs of
    the same product, and where CUDA itself was asked when the machine was recorded.
    """
    by_address = sort_by_address(gpus)
    if any(gpu.partition is not None for gpu in gpus):
        return None  # indices do not name MIG instances
    if env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return by_address
    numbers = {name: gpu for gpu in gpus for name in gpu.names if name.startswith("cuda")}
    if len(numbers) == len(gpus):
        return tuple(numbers[name] for name in sorted(numbers, key=lambda name: (len(name), name)))
    return by_address if _are_of_one_product(gpus) and not numbers else None


def _find_unnamed(gpus: Iterable[Device]) -> list[Device]:  # MIG instances whose UUIDs no file shows
    return [gpu for gpu in gpus if gpu.partition is not None and not gpu.uuid]


def _get_hint(gpus: Sequence[Device]) -> str:
    if any(gpu.partition is not None for gpu in gpus):
        return "name MIG instances by their UUIDs, which 'nvidia-smi -L' shows"
    return "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by their UUIDs"


def _find_all_cuda(gpus: Devices, order: Devices | None) -> VisibleDevices:
    """Return all GPUs where the variable is not set; of MIG instances without a known UUID only a single one.

    CUDA shows a program only one instance: without UUIDs, all ranks would use the same.
    """
    unnamed = _find_unnamed(gpus)
    remarks: tuple[str, ...] = ()
    if len(unnamed) > 1:
        remedy = f"set {CUDA_VISIBLE_DEVICES} to UUIDs that 'nvidia-smi -L' shows"
        remark = f"no file shows the UUIDs of the MIG instances {', '.join(map(str, unnamed))}: {remedy}"
        gpus, order, remarks = tuple(gpu for gpu in gpus if gpu not in unnamed), None, (remark,)
    found = _find_all(gpus, order, CUDA_VISIBLE_DEVICES, _get_hint(gpus))
    return found.replace(remarks=remarks + found.remarks)


def _find_named_cuda(gpus: Devices, order: Devices | None, text: str) -> VisibleDevices:
    """Return the GPUs that the variable names, in its order.

    Which instance of MIG a UUID means that no file shows does not matter, if all of them are near the same
    CPUs: the variable keeps the UUID.
    """
    words, unnamed = _split_words(text), _find_unnamed(gpus)
    are_alike = len({(gpu.cpus, gpu.node) for gpu in unnamed}) < 2
    for word in (word for word in words if _get_form(word) == _get_form(words[0])):
        if order is None and whole_number(word) is not None:
            reason = f"which GPU has index {word} is not known ({_get_hint(gpus)})"
            return _hide_all(CUDA_VISIBLE_DEVICES, text, reason)
        if _get_form(word) == "MIG-" and not are_alike and not _match(gpus, (), word):
            hint = "without --devices, ranks keep the variable; --near and --mask choose CPUs"
            reason = f"which GPU has the instance {word} is not known ({hint})"
            return _hide_all(CUDA_VISIBLE_DEVICES, text, reason)
    found: list[Device] = []
    for word in words:
        gpu = _match(gpus, order or (), word)
        if gpu is None and _get_form(word) == "MIG-":
            gpu = next((instance for instance in unnamed if instance not in found), None)
        if gpu in found or word in words[: len(found)]:
            return _hide_all(CUDA_VISIBLE_DEVICES, text, f"CUDA hides all GPUs, as '{word}' repeats a GPU")
        if gpu is None or _get_form(word) != _get_form(words[0]):
            break
        found.append(gpu)
    return _make_named(found, text, CUDA_VISIBLE_DEVICES, _find_uuids(found))


_RULES = {
    CUDA_VISIBLE_DEVICES: ("NVIDIA", "CUDA ignores {rest}, because its first item names no GPU"),
    ROCR_VISIBLE_DEVICES: ("AMD", "ROCm ignores {rest}, as its first item is invalid or repeated"),
}
"""For a variable that names GPUs in order, the vendor, and why it does not count from an item on."""


def _make_named(
    found: Sequence[Device], text: str, variable: str, uuids: Mapping[str, str]
) -> VisibleDevices:
    vendor, ignores = _RULES[variable]
    words = _split_words(text)
    rest = ",".join(words[len(found) :])
    remarks = (f"{variable}={text}: {ignores.format(rest=repr(rest))}",) if rest else ()
    remarks = remarks if words else (f"{variable} is empty: it hides all {vendor} GPUs",)
    named = [(gpu, uuids.get(gpu.name, word)) for gpu, word in zip(found, words, strict=False)]
    return VisibleDevices(devices=tuple(found), words=_make_words(variable, named), remarks=remarks)


# AMD


def _find_rocm_devices(accessible: Devices, env: Env, *, alone: bool) -> VisibleDevices:
    """Return the visible GPUs. CUDA_VISIBLE_DEVICES counts if they are `alone`: there are no NVIDIA GPUs."""
    text = env.get(ROCR_VISIBLE_DEVICES)
    numbered = _find_order(accessible) or sort_by_address(accessible)
    gpus, remarks = _narrow_to_slurm(accessible, numbered, text, env)
    order = _find_order(gpus)
    found = _find_named_rocm(gpus, order, text)
    for_hip = (HIP_VISIBLE_DEVICES, *((CUDA_VISIBLE_DEVICES,) if alone else ()))
    hip = next((name for name in for_hip if env.get(name)), "")
    opencl = "" if env.get(GPU_DEVICE_ORDINAL) == text else GPU_DEVICE_ORDINAL  # Slurm sets both
    counted = [name for name in (hip, opencl) if env.get(name)]
    if counted and found.devices:
        later = _count(found.devices if text is not None else order, counted, env)
        found = later.replace(remarks=found.remarks + later.remarks)
    return found.replace(remarks=remarks + found.remarks)


def _find_named_rocm(gpus: Devices, order: Devices | None, text: str | None) -> VisibleDevices:
    hint = "name GPUs by their UUIDs, which rocminfo shows"
    if text is None:
        return _find_all(gpus, order, ROCR_VISIBLE_DEVICES, hint)
    named: list[Device] = []
    for word in _split_words(text):
        if order is None and whole_number(word) is not None:
            return _hide_all(ROCR_VISIBLE_DEVICES, text, f"which GPU has index {word} is not known ({hint})")
        gpu = _match(gpus, order or (), word)
        if gpu is None or gpu in named:
            break
        named.append(gpu)
    return _make_named(named, text, ROCR_VISIBLE_DEVICES, _find_uuids(gpus))


def _count(left: Devices | None, variables: Sequence[str], env: Env) -> VisibleDevices:
    """Return the GPUs that all of these variables name, in the order of the first.

    `left` are the GPUs that ROCR_VISIBLE_DEVICES has left, in order. A rank gets the words of these
    variables: ROCR_VISIBLE_DEVICES stays, as their positions count in it. HIP does not read
    GPU_DEVICE_ORDINAL; its words are written to HIP_VISIBLE_DEVICES too where this is not set.
    """
    if left is None:
        remedy = f"set {ROCR_VISIBLE_DEVICES} to UUIDs, which rocminfo shows"
        reason = f"the order of the GPUs is not known ({remedy})"
        return _hide_all(variables[0], env[variables[0]], reason)
    named: dict[str, dict[Device, str]] = {}
    for name in variables:
        own = named[name] = {}
        for word in _split_words(env[name]):
            gpu = _match(left, left, word)
            if gpu is None:
                break  # an invalid item hides all after it
            own.setdefault(gpu, word)
    devices = tuple(gpu for gpu in named[variables[0]] if all(gpu in words for words in named.values()))
    if variables == [GPU_DEVICE_ORDINAL]:
        named = {HIP_VISIBLE_DEVICES: named[GPU_DEVICE_ORDINAL], **named}
    words = [
        word
        for name, items in named.items()
        for word in _make_words(name, ((gpu, item) for gpu, item in items.items() if gpu in devices))
    ]
    hidden = [gpu.name for gpu in left if gpu not in devices]
    values = ", ".join(f"{name}={env[name]}" for name in variables)
    rule = f"; it counts the GPUs that {ROCR_VISIBLE_DEVICES} leaves" if ROCR_VISIBLE_DEVICES in env else ""
    remarks = (f"{values} does not include {', '.join(hidden)}{rule}",) if hidden else ()
    return VisibleDevices(devices=devices, words=tuple(words), remarks=remarks)


# Intel

_HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"
_WITH_TILES = ("0bd", "0b6")
"""Beginnings of product numbers of the Data Center GPU Max series, which has 1 or 2 tiles."""


def _find_level_zero_devices(accessible: Devices, env: Env) -> VisibleDevices:
    text = env.get(ZE_AFFINITY_MASK, "").strip()
    counts_tiles = env.get(_HIERARCHY, "").upper() != "COMPOSITE"
    has_tiles = any(gpu.product.startswith(_WITH_TILES) for gpu in accessible)
    order = None if counts_tiles and has_tiles else _find_order(accessible)
    if order is None:
        hint = f"set {_HIERARCHY}=COMPOSITE, which counts whole GPUs"
        remark = f"{ZE_AFFINITY_MASK}: the numbers of the GPUs are not known ({hint})"
        return VisibleDevices(devices=() if text else accessible, remarks=(remark,))
    words = {gpu: str(index) for index, gpu in enumerate(order)}
    if text:  # items of the mask such as "1.0" name a tile
        items = dict.fromkeys(_split_words(text))
        indexes = {item: whole_number(item.partition(".")[0]) for item in items}
        own = [[item for item in items if indexes[item] == i] for i in range(len(order))]
        words = {gpu: ",".join(named) for gpu, named in zip(order, own, strict=True) if named}
    hidden = [gpu.name for gpu in accessible if gpu not in words]
    remarks = (f"{ZE_AFFINITY_MASK}={text} does not include {', '.join(hidden)}",) if hidden else ()
    found = tuple(gpu for gpu in accessible if gpu in words)
    named_gpus = _make_words(ZE_AFFINITY_MASK, ((gpu, words[gpu]) for gpu in found))
    return VisibleDevices(devices=found, words=named_gpus, remarks=remarks)
