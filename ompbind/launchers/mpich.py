"""MPICH's Hydra, and the launchers derived from it: Intel MPI, MVAPICH2."""

from ompbind.launchers.launcher import Launcher

MPICH = Launcher(
    name="MPICH or Intel MPI",
    rank="PMI_RANK",
    size="PMI_SIZE",
    local_rank="MPI_LOCALRANKID",
    local_size="MPI_LOCALNRANKS",
    run_id=("PMI_JOBID",),
    daemons=("hydra_pmi_proxy",),
)
