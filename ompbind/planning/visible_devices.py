"""Which devices ranks may get: those that are visible to the process that started ompbind.

The variables of the vendors (`CUDA_VISIBLE_DEVICES`, …), the launcher and the container limit what is
visible. This set is only ever narrowed for a rank, never widened.
"""

from __future__ import annotations

from ompbind.record import Record

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ompbind.machine.devices import Device


class VisibleDevices(Record):
    """The devices that ranks may get, in device order; the order in a variable of the vendor counts.

    `words` are (name of a device, its word in the variable that its vendor reads) pairs for the GPUs, as
    ("gpu:0", "GPU-46f77619-…") or ("gpu:0", "3"). `remarks` say what is not visible and why.
    """

    devices: tuple[Device, ...] = ()
    words: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()


def find_visible_devices(devices: Sequence[Device], env: Mapping[str, str]) -> VisibleDevices:
    """Return the devices of a machine that are visible with the environment of the caller."""
    return VisibleDevices(devices=tuple(device for device in devices if not device.excluded))
