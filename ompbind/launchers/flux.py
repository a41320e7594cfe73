"""Flux."""

from ompbind.launchers.launcher import Env, Launcher, number_in


def find_local_size(env: Env) -> int:
    """Return the tasks of this node, which Flux does not tell, where they divide evenly; else 0."""
    size, nodes = number_in(env, "FLUX_JOB_SIZE"), number_in(env, "FLUX_JOB_NNODES")
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
