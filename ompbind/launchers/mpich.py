"""MPICH Hydra and the launchers derived from it."""

from ompbind.launchers.launcher import Launcher

MPICH = Launcher(
    name="MPICH",
    rank="PMI_RANK",
    size="PMI_SIZE",
    local_rank="MPI_LOCALRANKID",
    local_size="MPI_LOCALNRANKS",
    run_id=("PMI_JOBID",),
    daemons=("mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy"),
)
