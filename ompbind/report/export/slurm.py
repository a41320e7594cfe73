"""A plan for Slurm: the options of an srun that has a whole node."""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.planning.plan import Plan
from ompbind.planning.request import MemoryMode
from ompbind.report.export.ranks import check_memory, confined_ranks, memory_nodes

SLURM_NODES = 128  # one past the highest NUMA node of --mem-bind: Slurm cuts longer masks off without a word


def render_slurm(plan: Plan) -> str:
    """Render the options of an srun that has a whole node, a mask of CPUs and of memory for each task.

    Memory is left out unless all ranks have nodes. Raises RequestError for nodes that Slurm has no room for,
    and for memory that is not to be bound.
    """
    check_memory(plan, "Slurm", MemoryMode.BIND)
    ranks = confined_ranks(plan)
    words = ["--nodes=1", f"--ntasks={len(ranks)}"]
    if len(ranks) > len(plan.machine.allowed):
        words.append("--overcommit")  # else srun waits for as many CPUs as tasks, for ever
    words.append(f"--cpu-bind=mask_cpu:{_masks([one.cpuset for one in ranks])}")
    memory = [memory_nodes(plan, one) for one in ranks]
    for one, nodes in zip(ranks, memory, strict=True):
        if nodes.bits >> SLURM_NODES:
            raise RequestError(
                f"Slurm binds memory to NUMA nodes 0 to {SLURM_NODES - 1} only, rank {one.rank} has {nodes}",
                hint="let every task bind itself: srun --cpu-bind=none ompbind exec -- COMMAND",
            )
    if all(memory):
        words.append(f"--mem-bind=mask_mem:{_masks(memory)}")
    return " ".join(words)


def _masks(sets: Sequence[CpuSet]) -> str:
    """Write sets as hexadecimal numbers of any length, without the commas that kernels write."""
    return ",".join(f"{one.bits:#x}" for one in sets)
