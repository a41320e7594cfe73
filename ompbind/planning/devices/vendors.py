"""What a vendor's variables leave visible: the rules that all vendors have in common."""

from collections.abc import Iterable, Mapping, Sequence

from ompbind.machine.devices import Device
from ompbind.planning.request import DeviceWord, VisibleDevices


def find_order(devices: Sequence[Device]) -> tuple[Device, ...] | None:
    """Return devices in the order in which their vendor numbers them; None if that is not known.

    That order is recorded in `ordinal`, or it is the order of PCI addresses if all are of the same product.
    """
    ordinals = [device.ordinal for device in devices]
    if None not in ordinals and len(set(ordinals)) == len(ordinals):
        return tuple(sorted(devices, key=lambda device: device.ordinal or 0))
    return tuple(devices) if are_of_one_product(devices) else None


def are_of_one_product(devices: Sequence[Device]) -> bool:
    """Return whether all devices are known to be of the same product."""
    products = {device.product for device in devices}
    return not devices or (len(products) == 1 and "" not in products) or len(devices) == 1


def find_unique_uuids(devices: Sequence[Device]) -> dict[str, str]:
    """Return the UUID of each device by its name; {} unless all devices have UUIDs that differ."""
    uuids = {device.name: device.uuid for device in devices}
    distinct = {uuid.lower() for uuid in uuids.values() if uuid}
    return uuids if len(distinct) == len(devices) else {}


def make_words(variable: str, pairs: Iterable[tuple[str, str]]) -> tuple[DeviceWord, ...]:
    """Return the words of (name of a device, word) pairs in a variable."""
    return tuple(DeviceWord(device=name, variable=variable, word=word) for name, word in pairs)


def find_all(
    gpus: tuple[Device, ...], order: tuple[Device, ...] | None, variable: str, hint: str
) -> VisibleDevices:
    """Return all GPUs where their variable is not set: it gets UUIDs, or indices if their order is known."""
    uuids = find_unique_uuids(gpus)
    pairs = [(gpu.name, uuids[gpu.name]) for gpu in gpus] if uuids else []
    if not uuids and order is not None:
        pairs = [(gpu.name, str(index)) for index, gpu in enumerate(order)]
    unknown = "neither the UUIDs of the GPUs nor the order of their indices are known"
    remarks = (f"ranks get no {variable}: {unknown} ({hint})",) if gpus and not pairs else ()
    return VisibleDevices(devices=gpus, words=make_words(variable, pairs), remarks=remarks)


def match_prefix(devices: Sequence[Device], prefix: str) -> Device | None:
    """Return the only device whose UUID begins with a text; None for none and for several."""
    found = [device for device in devices if device.uuid.startswith(prefix)]
    return found[0] if len(found) == 1 else None


def read_index(word: str) -> int | None:
    """Return a decimal number, None for other text."""
    return int(word[:9]) if word.isascii() and word.isdecimal() else None


def split_words(text: str) -> list[str]:
    """Return the items of a variable without spaces around them; none for an empty text."""
    return [word.strip() for word in text.split(",")] if text.strip() else []


SLURM_VARIABLES = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""Numbers of the GPUs of a step and of a job on the whole node; Slurm's documentation of srun and sbatch."""


def narrow_to_slurm(
    devices: tuple[Device, ...], numbered: Sequence[Device], text: str | None, env: Mapping[str, str]
) -> VisibleDevices:
    """Return the devices of the Slurm job, where more than these are accessible as far as is known.

    `numbered` are the devices in the order of Slurm's numbers, and `text` is the value of the vendor's
    variable, None if it is not set. With ConstrainDevices in cgroup.conf, `text` counts the devices of the
    job only; otherwise it has the same numbers as Slurm's variables.
    """
    variable = next((name for name in SLURM_VARIABLES if env.get(name)), "")
    numbers = [read_index(word) for word in split_words(env.get(variable, ""))]
    given = [device for number, device in enumerate(numbered) if number in numbers]
    if None in numbers or not given or len(given) != len(numbers) or len(given) == len(devices):
        return VisibleDevices(devices=devices)
    indices = {read_index(word) for word in split_words(text or "")}
    if text is not None and (None in indices or indices <= set(numbers)):
        return VisibleDevices(devices=devices)
    remark = f"{variable}={env[variable]}: only {', '.join(map(str, given))} belong to this job"
    return VisibleDevices(devices=tuple(device for device in devices if device in given), remarks=(remark,))
