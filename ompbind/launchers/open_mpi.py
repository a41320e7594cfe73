"""Open MPI 4 and 5. Version 5 starts ranks with PRRTE, and sets the same variables."""

from ompbind.launchers.launcher import Launcher

OPEN_MPI = Launcher(
    name="Open MPI",
    rank="OMPI_COMM_WORLD_RANK",
    size="OMPI_COMM_WORLD_SIZE",
    local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
    local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
    run_id=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    daemons=(
        *("mpirun", "mpirun.openmpi", "mpiexec", "mpiexec.openmpi", "orterun", "orted"),
        *("prterun", "prte", "prted"),
    ),
    example=(
        "Four MPI ranks",
        "mpirun -n 4 --bind-to none ompbind exec -- ./app",
    ),
)
