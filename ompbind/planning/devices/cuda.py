"""Which NVIDIA GPUs are visible: the rules of `CUDA_VISIBLE_DEVICES` and of the container runtime.

Sources: "CUDA Environment Variables" in the CUDA Programming Guide (indices, prefixes of UUIDs, an invalid
item hides all after it, an empty value hides all); `torch/cuda/__init__.py` (a repeated item hides all, items
of another form than the first hide all after them); "Specialized Configurations" in the guide of the NVIDIA
Container Toolkit (`NVIDIA_VISIBLE_DEVICES`).
"""

from collections.abc import Iterable, Mapping, Sequence

from ompbind.machine.devices import Device, sort_by_address
from ompbind.planning.devices.vendors import (
    are_of_one_product,
    find_all,
    find_unique_uuids,
    make_words,
    match_prefix,
    narrow_to_slurm,
    read_index,
    split_words,
)
from ompbind.planning.request import VisibleDevices

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_CONTAINER = "NVIDIA_VISIBLE_DEVICES"
_ORDER_HINT = "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by their UUIDs"


def find_cuda_devices(gpus: Sequence[Device], env: Mapping[str, str]) -> VisibleDevices:
    """Return the NVIDIA GPUs of a machine that are visible with an environment."""
    text = env.get(CUDA_VISIBLE_DEVICES)
    container = _narrow_to_container(gpus, env)
    slurm = narrow_to_slurm(container.devices, sort_by_address(container.devices), text, env)
    order = _find_cuda_order(slurm.devices, env)
    gpus = slurm.devices
    found = _find_all(gpus, order) if text is None else _find_named(gpus, order, text)
    return found.replace(remarks=container.remarks + slurm.remarks + found.remarks)


def _narrow_to_container(gpus: Sequence[Device], env: Mapping[str, str]) -> VisibleDevices:
    """Return the accessible GPUs that the container runtime was asked to provide.

    Indices count all GPUs of the host, by PCI address; sysfs shows these in a container too. An item that
    names no GPU of this machine is ignored: the device files decide.
    """
    accessible = tuple(gpu for gpu in gpus if not gpu.excluded)
    text = env.get(_CONTAINER, "").strip()
    if text in ("", "all", "void"):
        return VisibleDevices(devices=accessible)
    by_address = sort_by_address(gpus)
    words = [] if text == "none" else split_words(text)
    named = [_match(gpus, by_address, word) for word in words]
    if None in named:
        return VisibleDevices(devices=accessible)
    found = tuple(gpu for gpu in accessible if gpu in named)
    hidden = [gpu.name for gpu in accessible if gpu not in found]
    remarks = (f"{_CONTAINER}={text} does not include {', '.join(hidden)}",) if hidden else ()
    return VisibleDevices(devices=found, remarks=remarks)


def _match(gpus: Sequence[Device], order: Sequence[Device], word: str) -> Device | None:
    """Return the GPU that an item names, by index or UUID; None if it is invalid."""
    index = read_index(word)
    if index is not None:
        return order[index] if index < len(order) else None
    return match_prefix(gpus, word) if _get_form(word) else None


def _find_all(gpus: tuple[Device, ...], order: tuple[Device, ...] | None) -> VisibleDevices:
    """Return all GPUs where the variable is not set; of MIG instances without a known UUID only a single one.

    CUDA shows a program only one instance: without UUIDs, all ranks would use the same.
    """
    unnamed = _find_unnamed(gpus)
    if len(unnamed) < 2:
        return find_all(gpus, order, CUDA_VISIBLE_DEVICES, _get_hint(gpus))
    names = ", ".join(gpu.name for gpu in unnamed)
    remedy = f"set {CUDA_VISIBLE_DEVICES} to UUIDs that 'nvidia-smi -L' shows"
    remark = f"no file shows the UUIDs of the MIG instances {names}: {remedy}"
    rest = tuple(gpu for gpu in gpus if gpu not in unnamed)
    found = find_all(rest, None, CUDA_VISIBLE_DEVICES, _get_hint(rest))
    return found.replace(remarks=(remark, *found.remarks))


def _find_unnamed(gpus: Iterable[Device]) -> list[Device]:
    """Return the MIG instances whose UUIDs no file shows."""
    return [gpu for gpu in gpus if gpu.partition is not None and not gpu.uuid]


def _find_cuda_order(gpus: Sequence[Device], env: Mapping[str, str]) -> tuple[Device, ...] | None:
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
    return by_address if are_of_one_product(gpus) and not numbers else None


def _find_named(gpus: tuple[Device, ...], order: tuple[Device, ...] | None, text: str) -> VisibleDevices:
    """Return the GPUs that the variable names, in its order."""
    found: list[Device] = []
    words = split_words(text)
    where = f"{CUDA_VISIBLE_DEVICES}={text}"
    if unclear := _find_unclear(gpus, order, words):
        return VisibleDevices(remarks=(f"{where}: {unclear}",))
    for word in words:
        gpu = _match(gpus, order or (), word)
        if gpu is None and _get_form(word) == "MIG-":
            # a UUID that no file shows: which instance it is does not matter, as the variable keeps the UUID,
            # and all of them are near the same CPUs
            gpu = next((unnamed for unnamed in _find_unnamed(gpus) if unnamed not in found), None)
        if gpu in found or word in words[: len(found)]:
            return VisibleDevices(remarks=(f"{where}: CUDA hides all GPUs, as '{word}' repeats a GPU",))
        if gpu is None or _get_form(word) != _get_form(words[0]):
            break
        found.append(gpu)
    uuids = find_unique_uuids(found)
    pairs = [(gpu.name, uuids.get(gpu.name, word)) for gpu, word in zip(found, words, strict=False)]
    rest = ",".join(words[len(found) :])
    remarks = (f"{where}: CUDA ignores '{rest}', because its first item names no GPU",) if rest else ()
    remarks = remarks if words else (f"{CUDA_VISIBLE_DEVICES} is empty: it hides all NVIDIA GPUs",)
    return VisibleDevices(
        devices=tuple(found), words=make_words(CUDA_VISIBLE_DEVICES, pairs), remarks=remarks
    )


def _find_unclear(gpus: Sequence[Device], order: Sequence[Device] | None, words: Sequence[str]) -> str:
    """Return why it is not known which GPU an item of the variable names; "" if that is known."""
    are_alike = len({(gpu.cpus, gpu.node) for gpu in _find_unnamed(gpus)}) < 2
    for word in (word for word in words if _get_form(word) == _get_form(words[0])):
        if order is None and read_index(word) is not None:
            return f"which GPU has index {word} is not known ({_get_hint(gpus)})"
        if _get_form(word) == "MIG-" and not are_alike and not match_prefix(gpus, word):
            hint = "without --devices, ranks keep the variable; --near and --mask choose CPUs"
            return f"which GPU has the instance {word} is not known ({hint})"
    return ""


def _get_hint(gpus: Sequence[Device]) -> str:
    has_instances = any(gpu.partition is not None for gpu in gpus)
    return "name MIG instances by their UUIDs, which 'nvidia-smi -L' shows" if has_instances else _ORDER_HINT


def _get_form(word: str) -> str:
    """Return the form of an item: "GPU-", "MIG-" or "" for an index."""
    return word[:4] if word.startswith(("GPU-", "MIG-")) else ""
