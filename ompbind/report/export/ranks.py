"""CPUs, memory and devices of ranks as other tools name them, for all formats.

The functions raise RequestError for plans that other tools cannot follow.
"""

import shlex

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.machine.devices import AMD, NVIDIA, Device, DeviceKind, sort_by_address
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_variables import Variables
from ompbind.planning.request import MemoryMode


def confined_ranks(plan: Plan) -> tuple[Placement, ...]:
    """Return the placements of a plan; raises RequestError if its machine cannot confine processes."""
    if not plan.machine.bindable:
        raise RequestError(
            "this system cannot confine a process to CPUs, so there are no CPUs to pass to other tools",
            hint="use --format sh or --format env for the thread count of a rank",
        )
    return plan.placements


def memory_nodes(plan: Plan, placement: Placement) -> CpuSet:
    """Return the NUMA nodes of a rank's memory; none if they are unknown or no memory policy can be set."""
    if plan.request.memory is MemoryMode.LOCAL:
        return CpuSet(placement.memory_nodes)
    return CpuSet(placement.memory.nodes) if placement.memory else CpuSet()


def check_memory(plan: Plan, tool: str, *supported: MemoryMode, starts_workers: bool = False) -> None:
    """Raise RequestError for a --memory policy that a tool does not support; `local` needs no support.

    `starts_workers`: the tool starts the processes of all ranks itself, so `ompbind exec` cannot start them.
    """
    mode = plan.request.memory
    if mode not in (MemoryMode.LOCAL, *supported):
        if starts_workers:
            hint = f"leave --memory out: {tool} starts its workers itself"
        else:
            hint = f"leave --memory out, or start each rank with: ompbind exec --memory {mode} -- COMMAND"
        raise RequestError(f"{tool} has no option for --memory {mode}", hint=hint)


def check_thread_binding(plan: Plan, tool: str, hint: str) -> None:
    """Raise RequestError for --bind none, if a tool always binds OpenMP threads to the CPUs of a rank."""
    if plan.request.bind is Bind.NONE:
        raise RequestError(
            f"{tool} binds OpenMP threads to the CPUs that it is given; --bind none excludes that", hint=hint
        )


def render_compute_lists(plan: Plan) -> str:
    """Render the compute CPUs of each rank, as in '0-3|4-7'; of a rank with fewer threads, the first CPUs.

    The programs that read these lists start one OpenMP thread on each CPU.
    """
    return "|".join(str(CpuSet(placement.cpus[: placement.threads])) for placement in confined_ranks(plan))


_UUIDS = ("GPU-", "MIG-")


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
        numbered = sort_by_address(
            [gpu for gpu in plan.machine.devices if (gpu.kind, gpu.vendor) == (DeviceKind.GPU, NVIDIA)]
        )
        for gpu in nvidia:
            if gpu.partition is not None and not gpu.uuid:
                hint = "name it yourself: --gpus device=MIG-…"
                raise RequestError(f"the UUID of {gpu}, a MIG instance, is not known", hint=hint)
        names = ",".join(gpu.uuid or str(numbered.index(gpu)) for gpu in nvidia)
        words += ["--gpus", shlex.quote(f'"device={names}"')]  # the option is a CSV row, which needs quotes
    files = [file for gpu in gpus if gpu.vendor != NVIDIA for file in _find_files(gpu)]
    return words + [f"--device={file}" for file in dict.fromkeys(files)]


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
