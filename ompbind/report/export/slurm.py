"""A plan for Slurm: the options of an srun that has a whole node (machine)."""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode
from ompbind.report.export.devices import find_gpus, number_gpus
from ompbind.report.export.ranks import check_memory, confined_ranks, memory_nodes

SLURM_NODES = 128  # NUMA nodes that --mem-bind can name: Slurm cuts off longer masks without a message


def render_slurm(plan: Plan) -> str:
    """Render the options of an srun that has a whole node (machine): CPU and memory masks of all tasks.

    Memory is left out unless all ranks have NUMA nodes. Raises RequestError for numbers of NUMA nodes that
    are too high for Slurm, and for a --memory policy other than local and bind.
    """
    check_memory(plan, "Slurm", MemoryMode.BIND)
    ranks = confined_ranks(plan)
    words = ["--nodes=1", f"--ntasks={len(ranks)}"]
    if len(ranks) > len(plan.machine.allowed):
        words.append("--overcommit")  # otherwise srun waits forever for as many CPUs as tasks
    words.append(f"--cpu-bind=mask_cpu:{_masks([placement.cpuset for placement in ranks])}")
    memory = [memory_nodes(plan, placement) for placement in ranks]
    for placement, nodes in zip(ranks, memory, strict=True):
        if nodes.bits >> SLURM_NODES:
            raise RequestError(
                f"Slurm binds memory to NUMA nodes 0 to {SLURM_NODES - 1} only,"
                f" rank {placement.rank} has {nodes}",
                hint="let every task bind itself: srun --cpu-bind=none ompbind exec -- COMMAND",
            )
    if all(memory):
        words.append(f"--mem-bind=mask_mem:{_masks(memory)}")
    return " ".join([*words, *_gpu_options(plan, ranks)])


def _gpu_options(plan: Plan, ranks: Sequence[Placement]) -> list[str]:
    """Return the options that give each task its GPUs, by their numbers on a whole node."""
    gpus = [find_gpus(placement) for placement in ranks]
    if not any(gpus):
        return []
    numbers = number_gpus(plan)
    sets = [CpuSet(numbers[gpu.name] for gpu in own) for own in gpus]
    return [f"--gpus-per-node={len(numbers)}", f"--gpu-bind=mask_gpu:{_masks(sets)}"]


def _masks(sets: Sequence[CpuSet]) -> str:
    """Return sets as hexadecimal numbers of any length, without the commas of kernel masks."""
    return ",".join(f"{members.bits:#x}" for members in sets)
