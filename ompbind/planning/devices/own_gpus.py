"""Ranks that see only GPUs of their own: their launcher has divided the GPUs, as srun --gpus-per-task=1.

Each rank plans for all ranks on its machine, but cannot find out which GPUs the other ranks see:

- A rank with CPUs of its own keeps its GPUs too.
- If Slurm has divided all GPUs of the machine evenly, the plan has all of them, and each rank takes the
  placement with its own GPUs.
- Otherwise, ranks get CPUs as they would without devices.

In the last two cases, the variables of the vendors stay as they are.
"""

from collections.abc import Iterable, Mapping

from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.model import Machine
from ompbind.planning.devices.visible import read_index
from ompbind.planning.request import Request, VisibleDevices
from ompbind.record import Record

_GPUS_OF_STEP, _BINDING_OF_GPUS = "SLURM_GPUS_ON_NODE", "SLURMD_TRES_BIND"
"""Slurm's variables: how many GPUs the ranks on a machine have together, and how ranks are bound to them."""


class OwnGpus(Record):
    """The GPUs that only a single rank of `ranks` on a machine sees, and all GPUs of the machine.

    `are_divided` says that the launcher has given every GPU of the machine to one rank.
    """

    ranks: int
    gpus: tuple[Device, ...]
    all_gpus: tuple[Device, ...]
    are_divided: bool = False


def find_own_gpus(
    request: Request, machine: Machine, ranks: int, env: Mapping[str, str], *, by_slurm: bool
) -> OwnGpus | None:
    """Return the GPUs that only this rank sees; None if all ranks see the same GPUs, as far as is known.

    Slurm says how many GPUs all ranks have. With other launchers, the visible GPUs are its own if they are
    too few for all ranks, but the GPUs of the machine are not.
    """
    wants_gpus = request.devices == "auto" or DeviceKind.GPU in request.devices
    own = _select_gpus(request.visible.devices) if request.visible else ()
    every = _select_gpus(machine.devices)
    if ranks == 1 or not wants_gpus or not own:
        return None
    given = (read_index(env.get(_GPUS_OF_STEP, "")) or 0) if by_slurm else 0
    needed = ranks * (request.devices_per_rank or 1)
    is_narrowed = len(own) < needed <= len(every) and not request.share_devices
    if not (len(own) < given if given else is_narrowed):
        return None
    by_list = any(word in env.get(_BINDING_OF_GPUS, "") for word in ("map_gpu", "mask_gpu"))
    are_divided = given == len(every) == ranks * len(own) and not by_list  # a list can repeat a GPU
    return OwnGpus(ranks=ranks, gpus=own, all_gpus=every, are_divided=are_divided)


def _select_gpus(devices: Iterable[Device]) -> tuple[Device, ...]:
    return tuple(device for device in devices if device.kind is DeviceKind.GPU and not device.physical)


def request_all_gpus(request: Request, own: OwnGpus) -> tuple[Request, int] | None:
    """Return the request for all GPUs of the machine, and the index of the placement with a rank's own GPUs.

    Returns None if that plan cannot be the same for all ranks.
    """
    each = len(own.gpus)
    groups = [set(own.all_gpus[start : start + each]) for start in range(0, len(own.all_gpus), each)]
    fits = request.devices_per_rank in (None, each) and request.needs_strategy
    if not (own.are_divided and fits and set(own.gpus) in groups):
        return None
    visible = request.visible.devices if request.visible else ()
    others = (device for device in visible if device.kind is not DeviceKind.GPU)
    request = request.replace(
        visible=VisibleDevices(devices=(*own.all_gpus, *others)),
        devices_per_rank=each,
        share_devices=False,
    )
    return request, groups.index(set(own.gpus))
