"""torchrun. Its process is called pt_elastic since PyTorch 2.5, before that torchrun or python."""

from ompbind.launchers.launcher import Launcher

TORCHRUN = Launcher(
    name="torchrun",
    rank="RANK",
    size="WORLD_SIZE",
    local_rank="LOCAL_RANK",
    local_size="LOCAL_WORLD_SIZE",
    run_id=("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    daemons=("pt_elastic", "torchrun"),
    mark="TORCHELASTIC_RUN_ID",
)
