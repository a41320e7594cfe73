"""PALS, the application launcher of HPE Cray systems.

PALS sets the number of all ranks in the variables of PMI only. The PMI plugins of Slurm and Flux set some of
the variables of PALS too.
"""

from ompbind.launchers.launcher import Env, Launcher, read_number


def find_local_size(env: Env) -> int:
    """Return the number of ranks on this machine, 0 if unknown."""
    names = (name for name in ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE") if env.get(name))
    return next((read_number(env, name) for name in names), 0)


PALS = Launcher(
    name="PALS",
    rank="PALS_RANKID",
    size="PMI_SIZE",
    local_rank="PALS_LOCAL_RANKID",
    local_size=find_local_size,
    run_id=("PALS_APID",),
    daemons=("palsd",),
)
