"""Slurm."""

from __future__ import annotations

from ompbind.launchers.launcher import Env, Launcher, read_number


def find_local_size(env: Env) -> int:
    """Return the number of tasks on this node, 0 if unknown.

    Slurm writes the tasks of all nodes as "4(x2),3": 4 on each of two nodes, 3 on the next node.
    """
    import re  # late: most starts have no launcher

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
    example=("Eight Slurm tasks", "srun -n 8 --cpu-bind=none ompbind exec -- ./app"),
)
