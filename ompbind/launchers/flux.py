"""Flux."""

from __future__ import annotations

from ompbind.launchers.launcher import Env, Launcher, read_number


def find_local_size(env: Env) -> int:
    """Return the tasks on this node: total / nodes, as Flux sets only these; 0 if not a whole number."""
    size, nodes = read_number(env, "FLUX_JOB_SIZE"), read_number(env, "FLUX_JOB_NNODES")
    return size // nodes if nodes and size % nodes == 0 else 0


FLUX = Launcher(
    name="Flux",
    rank="FLUX_TASK_RANK",
    size="FLUX_JOB_SIZE",
    local_rank="FLUX_TASK_LOCAL_ID",
    local_size=find_local_size,
    run_id=("FLUX_JOB_ID",),
    daemons=("flux-shell",),
)
