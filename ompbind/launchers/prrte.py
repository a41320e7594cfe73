"""PRRTE without Open MPI: `prterun`, `prun`.

PRRTE sets the rank, but neither the local rank nor any number of ranks: a rank has to ask the server of PRRTE
with the PMIx library. Open MPI's `mpirun` is PRRTE with more variables, see `open_mpi`.
"""

from ompbind.launchers.launcher import Launcher

PRRTE = Launcher(
    name="PRRTE",
    rank="PMIX_RANK",
    size="",
    local_rank="",
    local_size="",
    run_id=("PMIX_NAMESPACE",),
    daemons=("prterun", "prte", "prted"),
)
