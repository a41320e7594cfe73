"""The variables that give a rank its devices.

A variable of a vendor gets words that it had already, or UUIDs: it is narrowed, never widened.
"""

from collections.abc import Mapping, Sequence

from ompbind.commands.rank_variables import NAMES_OF_DEVICES, OMPBIND_NICS, OMPBIND_RANK_DEVICES, Variables
from ompbind.machine.devices import Device, DeviceKind
from ompbind.planning.devices.visible import (
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    find_visible_devices,
)
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import VisibleDevices


def make_device_variables(
    placement: Placement, plan: Plan, base: Mapping[str, str], *, keep_env: bool = False
) -> Variables:
    """Return the variables that give a rank its devices.

    `base` is the environment that the rank inherits: it says which devices are visible if the request does
    not. With `keep_env`, the rank keeps the variables of vendors and libraries in it.
    """
    visible = plan.request.visible or find_visible_devices(plan.machine.devices, base)
    gpus = [device for device in placement.devices if device.kind is DeviceKind.GPU]
    nics = [device for device in placement.devices if device.kind is DeviceKind.NIC]
    names = (next(iter((*nic.rdma_names, *nic.names)), nic.address) for nic in nics)  # for RDMA first
    variables = {
        OMPBIND_RANK_DEVICES: ",".join(device.name for device in placement.devices),
        OMPBIND_NICS: ",".join(names) or None,
        **(_narrow(visible, gpus) if gpus else {}),
    }
    kept = base.keys() - NAMES_OF_DEVICES if keep_env else ()
    return {name: value for name, value in variables.items() if name not in kept}


_HIDES_ALL = {"HIP_VISIBLE_DEVICES": "-1", "GPU_DEVICE_ORDINAL": "-1", "ZE_AFFINITY_MASK": None}
"""Values that hide all GPUs where an empty value hides none; None: no value does that."""


def _narrow(visible: VisibleDevices, gpus: Sequence[Device]) -> dict[str, str]:
    """Return each variable that names GPUs of the machine, with the words of these GPUs only.

    A GPU that no word names leaves the variables of its vendor as they are. A rank with GPUs of both NVIDIA
    and AMD gets HIP_VISIBLE_DEVICES: otherwise HIP would read CUDA_VISIBLE_DEVICES, and find no GPU of AMD
    that has the UUID of NVIDIA's GPU.
    """
    names = {gpu.name for gpu in gpus}
    with_word = {word.device for word in visible.words}
    unnamed = {gpu.vendor for gpu in gpus if gpu.name not in with_word}
    vendors = {device.name: device.vendor for device in visible.devices}
    variables: dict[str, str] = {}
    for variable in dict.fromkeys(word.variable for word in visible.words):
        own = [word for word in visible.words if word.variable == variable]
        value = ",".join(word.word for word in own if word.device in names) or _HIDES_ALL.get(variable, "")
        if value is not None and vendors.get(own[0].device) not in unnamed:
            variables[variable] = value
    of_amd = variables.get(ROCR_VISIBLE_DEVICES)
    if of_amd and variables.get(CUDA_VISIBLE_DEVICES):
        variables[HIP_VISIBLE_DEVICES] = ",".join(map(str, range(len(of_amd.split(",")))))
    return variables
