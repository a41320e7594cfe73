"""Which devices a request gives to ranks: visible and usable devices of the requested kinds."""

from collections.abc import Iterable, Sequence

from ompbind.cpuset import count
from ompbind.errors import PlanError
from ompbind.machine.devices import Device, DeviceKind, has_rdma
from ompbind.machine.model import Machine
from ompbind.planning.devices.vendors import VisibleDevices
from ompbind.planning.devices.visible import find_visible_devices
from ompbind.planning.request import Request
from ompbind.record import Record


class SelectedDevices(Record):
    """The devices that ranks get, in device order.

    `main` decide which CPUs a rank gets. Besides, each rank gets the nearest of `others`.
    """

    main: tuple[Device, ...] = ()
    others: tuple[Device, ...] = ()


def select_devices(machine: Machine, request: Request) -> SelectedDevices:
    """Return the devices that ranks get; none if the request leaves this open and no GPU is visible.

    Network interfaces without RDMA count only if no other is visible. Raises PlanError if no device of a
    requested kind is visible.
    """
    visible = find_usable_devices(machine, request)
    gpus = tuple(device for device in visible.devices if device.kind is DeviceKind.GPU)
    if request.devices == "auto":
        return SelectedDevices(main=gpus)
    nics = _prefer_rdma([device for device in visible.devices if device.kind is DeviceKind.NIC])
    found = {DeviceKind.GPU: gpus, DeviceKind.NIC: nics}
    for kind in map(DeviceKind, request.devices):
        if not found[kind]:
            hint = "'ompbind topo' lists the devices of this machine; without --devices, ranks get none"
            raise PlanError(f"no {kind.label} is visible{render_reasons(kind, machine, request)}", hint=hint)
    main = DeviceKind.GPU if DeviceKind.GPU in request.devices else DeviceKind.NIC
    has_others = len(request.devices) > 1
    return SelectedDevices(main=found[main], others=nics if has_others else ())


def find_usable_devices(machine: Machine, request: Request) -> VisibleDevices:
    """Return the visible devices; a virtual function is one of them if its physical function is not."""
    visible = request.visible or find_visible_devices(machine.devices, {})
    addresses = {device.address for device in visible.devices}
    usable = tuple(device for device in visible.devices if device.physical not in addresses)
    return visible.replace(devices=usable)


def _prefer_rdma(nics: Sequence[Device]) -> tuple[Device, ...]:
    return tuple(nic for nic in nics if has_rdma(nic)) or tuple(nics)


def render_reasons(kind: DeviceKind, machine: Machine, request: Request) -> str:
    """Return why devices of a kind are not visible, as " (reason; reason)"; "" if no reason is known."""
    remarks = find_usable_devices(machine, request).remarks
    excluded = [
        f"{device}: {device.excluded}"
        for device in machine.devices
        if device.kind is kind and device.excluded
    ]
    reasons = "; ".join((*(remarks if kind is DeviceKind.GPU else ()), *excluded))
    return f" ({reasons})" if reasons else ""


def count_devices(number: int, devices: Iterable[Device]) -> str:
    """Return a number of devices with their kind: "1 GPU", "4 NICs"."""
    return count(number, next(device.kind.label for device in devices))
