"""Slurm."""

import re

from ompbind.launchers.launcher import Env, Launcher, number_in


def find_local_size(env: Env) -> int:
    """Return the tasks of this node from text such as "4(x2),3", which counts node after node."""
    text = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or ""
    node = number_in(env, "SLURM_NODEID") if env.get("SLURM_NODEID") else 0
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
    example=("A Slurm step of eight tasks", "srun -n 8 --cpu-bind=none ompbind exec -- ./app"),
)
