"""Slurm."""

import re

from ompbind.errors import RequestError
from ompbind.launchers.launcher import Env, Launcher, read_number


def find_local_size(env: Env) -> int:
    """Return the number of tasks on this node, 0 if unknown; raises RequestError for contradictions.

    Slurm lists the tasks of this node as "0,1,2": also in heterogeneous jobs, which have one component on a
    node. Without this list, the tasks of all nodes are counted.
    """
    tasks = env.get("SLURM_GTIDS")
    if not tasks:
        return _find_size_of_node(env)
    numbers = tasks.split(",")
    if env.get("SLURM_PROCID") not in numbers:
        text = f"SLURM_PROCID={env.get('SLURM_PROCID')} and SLURM_GTIDS={tasks} contradict each other"
        raise RequestError(text, hint="start ranks with srun, and do not set these variables")
    return len(numbers)


def _find_size_of_node(env: Env) -> int:
    """Return the tasks of this node from a list for all nodes: "4(x2),3" is 4 on two nodes each, then 3."""
    text = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or ""
    node = read_number(env, "SLURM_NODEID") if env.get("SLURM_NODEID") else 0
    counts = [
        int(match[1])
        for match in re.finditer(r"(\d+)(?:\(x(\d+)\))?", text)
        for _ in range(min(int(match[2] or 1), node + 1))
    ]
    return counts[node] if node < len(counts) else 0


SLURM = Launcher(
    name="Slurm",
    rank="SLURM_PROCID",
    size="SLURM_NTASKS",
    local_rank="SLURM_LOCALID",
    local_size=find_local_size,
    run_id=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    daemons=("slurmstepd",),
    step="SLURM_STEP_ID",
    job_steps=(str(0xFFFFFFFA), str(0xFFFFFFFB)),  # the shell of salloc, the script of sbatch
    example=("Eight Slurm tasks", "srun -n 8 --cpu-bind=none ompbind exec -- ./app"),
)
