"""torchrun."""

from ompbind.launchers.launcher import Launcher

TORCHRUN = Launcher(
    name="torchrun",
    rank="RANK",
    size="WORLD_SIZE",
    local_rank="LOCAL_RANK",
    local_size="LOCAL_WORLD_SIZE",
    run_id=("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    daemons=("torchrun",),
)
