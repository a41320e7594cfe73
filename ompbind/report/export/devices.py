"""Devices as other tools name them: by UUID, by device file, or by a number among the GPUs of a machine."""

import shlex

from ompbind.errors import RequestError
from ompbind.machine.devices import AMD, NVIDIA, Device, DeviceKind, sort_by_address
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_variables import Variables


def find_gpus(placement: Placement) -> list[Device]:
    """Return the GPUs of a rank."""
    return [device for device in placement.devices if device.kind is DeviceKind.GPU]


def number_gpus(plan: Plan) -> dict[str, int]:
    """Return the number of each GPU, by name: its position by PCI address among all GPUs of the machine.

    Raises RequestError if the GPUs are of several vendors, because tools number these in different ways.
    """
    gpus = [device for device in plan.machine.devices if device.kind is DeviceKind.GPU]
    if len({gpu.vendor for gpu in gpus}) > 1:
        raise RequestError(
            "the machine has GPUs of several vendors: their numbers in other tools are not known",
            hint="let every rank set its own: ompbind exec --devices gpu -- COMMAND",
        )
    return {gpu.name: number for number, gpu in enumerate(sort_by_address(gpus))}


def make_container_options(plan: Plan, placement: Placement) -> list[str]:
    """Return the options of docker that give a container the GPUs of a rank, as words of a shell.

    NVIDIA's runtime takes UUIDs, or numbers by PCI address. Other GPUs have device files.
    """
    gpus = find_gpus(placement)
    nvidia = [gpu for gpu in gpus if gpu.vendor == NVIDIA]
    words = []
    if nvidia:
        names = ",".join(gpu.uuid or _number_nvidia(plan, gpu) for gpu in nvidia)
        words += ["--gpus", shlex.quote(f'"device={names}"')]  # the option is a CSV row, which needs quotes
    files = [file for gpu in gpus if gpu.vendor != NVIDIA for file in _find_files(gpu)]
    return words + [f"--device={file}" for file in dict.fromkeys(files)]


def _number_nvidia(plan: Plan, gpu: Device) -> str:
    gpus = [device for device in plan.machine.devices if (device.kind, device.vendor) == (gpu.kind, NVIDIA)]
    if gpu.partition is not None:
        raise RequestError(
            f"the UUID of {gpu}, a MIG instance, is not known", hint="name it yourself: --gpus device=MIG-…"
        )
    return str(sort_by_address(gpus).index(gpu))


def _find_files(gpu: Device) -> list[str]:
    """Return the device files of a GPU that has no runtime of its own for containers."""
    nodes = [name for name in gpu.names if name.startswith("renderD")]
    if not nodes:
        raise RequestError(
            f"the device file of {gpu} is not known, so a container cannot get it",
            hint="make the plan on the machine itself, or use --format sh",
        )
    return [*(["/dev/kfd"] if gpu.vendor == AMD else []), f"/dev/dri/{nodes[0]}"]


def select_container_variables(plan: Plan, environment: Variables) -> Variables:
    """Return the variables that are valid in a container: indices count the GPUs of the container only."""
    visible = plan.request.visible
    indices = {word.variable for word in visible.words if not word.word.startswith(_UUIDS)} if visible else ()
    return {name: value for name, value in environment.items() if name not in indices}


_UUIDS = ("GPU-", "MIG-")
