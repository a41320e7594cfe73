"""Refuse requests whose NUMA nodes or devices are wrong for every machine."""

from collections.abc import Sequence

from ompbind.errors import RequestError
from ompbind.machine.model import Level
from ompbind.masks.grammar import Item


def check_nodes(text: str, parts: Sequence[Sequence[Item]]) -> None:
    """Raise RequestError for a mask with this text and these parts that is not one list of NUMA nodes."""
    if not _names_nodes(parts):
        hint = "name the NUMA nodes of all ranks in one part, for example node:#0,node:#1"
        raise RequestError(f"nodes={text!r} is not one list of NUMA nodes", hint=hint)


def _names_nodes(parts: Sequence[Sequence[Item]]) -> bool:
    """Return whether a mask has one part that only names NUMA nodes: a number alone would be a CPU."""
    levels = [item.chain[-1].level if item.chain else None for part in parts for item in part]
    has_cpus = any(item.cpus for part in parts for item in part)
    return len(parts) == 1 and not has_cpus and set(levels) <= {Level.NODE, None}


def check_devices(
    devices: Sequence[str], near: Sequence[str], devices_per_rank: int | None, *, known: Sequence[str]
) -> None:
    """Raise RequestError for an unknown kind of device, or for an impossible number of devices."""
    kinds = (devices,) if isinstance(devices, str) else devices
    if devices != "auto" and not set(known).issuperset(kinds):
        hint = "use (DeviceKind.GPU,), (DeviceKind.NIC,), both, 'auto', or () for none"
        raise RequestError(f"devices={devices!r} names no devices that ranks can get", hint=hint)
    if not isinstance(near, tuple):
        raise RequestError(f"near={near!r} is not a tuple", hint="use near=('gpu:0',)")
    if devices_per_rank is not None and devices_per_rank < 1:
        hint = "use 1 or more, or None for an equal share"
        raise RequestError(f"cannot plan {devices_per_rank} devices per rank", hint=hint)
