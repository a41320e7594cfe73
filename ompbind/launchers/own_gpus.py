"""Ranks that see only GPUs of their own: their launcher has divided the GPUs, as srun --gpus-per-task=1.

Each rank plans for all ranks on its machine, but cannot find out which GPUs the other ranks see:

- A rank with CPUs of its own keeps its GPUs too.
- If Slurm has divided all GPUs of the machine evenly, the plan has all of them, and each rank takes the
  placement with its own GPUs.
- Otherwise, ranks get CPUs as they would without devices.

In the last two cases, the variables of the vendors stay as they are.
"""

from collections.abc import Iterable, Mapping

from ompbind.cpuset import count
from ompbind.machine.devices import Device, DeviceKind
from ompbind.machine.model import Machine
from ompbind.planning.devices.visible import read_index
from ompbind.planning.request import Request, VisibleDevices

_GPUS_OF_STEP, _BINDING_OF_GPUS = "SLURM_GPUS_ON_NODE", "SLURMD_TRES_BIND"
"""Slurm's variables: how many GPUs the ranks on a machine have together, and how ranks are bound to them."""


def request_own_gpus(
    request: Request, machine: Machine, ranks: int, env: Mapping[str, str], *, by_slurm: bool
) -> tuple[Request, int | None, str]:
    """Return the request of a rank that may see only GPUs of its own.

    Also the index of its placement, None if that stays as it is, and why no plan can have the GPUs of a rank,
    "" otherwise. The request stays as it is if all of the `ranks` on a machine see the same GPUs, as far as
    is known. Slurm says how many GPUs all ranks have. With other launchers, the visible GPUs are the rank's
    own if they are too few for all ranks, but the GPUs of the machine are not.
    """
    wants_gpus = request.devices == "auto" or DeviceKind.GPU in request.devices
    seen = request.visible.devices if request.visible else ()
    own, every = _select_gpus(seen), _select_gpus(machine.devices)
    if ranks == 1 or not wants_gpus or not own:
        return request, None, ""
    given = (read_index(env.get(_GPUS_OF_STEP, "")) or 0) if by_slurm else 0
    needed = ranks * (request.devices_per_rank or 1)
    is_narrowed = len(own) < needed <= len(every) and not request.share_devices
    if not (len(own) < given if given else is_narrowed):
        return request, None, ""
    if request.outside_ranks:
        return request.replace(has_own_devices=True), None, ""
    each = len(own)
    by_list = any(word in env.get(_BINDING_OF_GPUS, "") for word in ("map_gpu", "mask_gpu"))
    are_divided = given == len(every) == ranks * each and not by_list  # a list can repeat a GPU
    blocks = [every[start : start + each] for start in range(0, len(every), each)]
    at = next((index for index, block in enumerate(blocks) if set(block) == set(own)), None)
    if are_divided and at is not None and request.devices_per_rank in (None, each) and request.needs_strategy:
        others = (device for device in seen if device.kind is not DeviceKind.GPU)
        visible = VisibleDevices(devices=(*every, *others))
        request = request.replace(visible=visible, devices_per_rank=each, share_devices=False)
        return request, at, ""
    text = f"sees {count(each, 'GPU')} of {len(every)}, and cannot plan for the GPUs of the other ranks"
    return request.replace(devices=()), None, text


def _select_gpus(devices: Iterable[Device]) -> tuple[Device, ...]:
    return tuple(device for device in devices if device.kind is DeviceKind.GPU and not device.physical)
