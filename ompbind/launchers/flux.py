"""Flux."""

from ompbind.launchers.launcher import Env, Launcher, read_number


def find_local_size(env: Env) -> int:
    """Return the tasks on this node: total / nodes, as Flux sets only these; 0 if that cannot be true."""
    size, nodes = read_number(env, "FLUX_JOB_SIZE"), read_number(env, "FLUX_JOB_NNODES")
    equal = size // nodes if nodes and size % nodes == 0 else 0
    return equal if equal > read_number(env, "FLUX_TASK_LOCAL_ID") else 0


FLUX = Launcher(
    name="Flux",
    rank="FLUX_TASK_RANK",
    size="FLUX_JOB_SIZE",
    local_rank="FLUX_TASK_LOCAL_ID",
    local_size=find_local_size,
    run_id=("FLUX_JOB_ID",),
    daemons=("flux-shell",),
    assumes_local_size=True,
)
