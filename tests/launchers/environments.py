"""The variables that launchers set for a rank, as ranks have printed them: those about ranks and jobs.

Open MPI 4.1.4 and 5.0.11, prterun of 5.0.11, MPICH 4.0.2, Slurm 22.05 and torchrun 2.13 were run on one
machine, Slurm also with two `slurmd`. Flux, MVAPICH2 and PALS are from the source of Flux's shell, of
MVAPICH2's mpispawn, of Slurm's plugin mpi/cray_shasta, and from scripts of users of PALS and JSM.
"""

import shlex


def make_env(text: str, prefix: str = "") -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(text))
    return {f"{prefix}{name}": value for name, _, value in pairs}


_OPEN_MPI = """APP_CTX_NUM_PROCS='1 2' COMM_WORLD_LOCAL_RANK=1 COMM_WORLD_LOCAL_SIZE=3 COMM_WORLD_NODE_RANK=1
    COMM_WORLD_RANK=1 COMM_WORLD_SIZE=3 NUM_APP_CTX=2 UNIVERSE_SIZE=2"""
OPEN_MPI_4 = {
    **make_env(f"{_OPEN_MPI} FIRST_RANKS='0 0' MCA_ess_base_jobid=1087307777 MCA_orte_num_nodes=1", "OMPI_"),
    **make_env("ID=1087307777.1 NAMESPACE=1087307777 RANK=1", "PMIX_"),
}
"""`mpirun -n 1 A : -n 2 B`: two programs, numbered together."""

OPEN_MPI_5 = {
    **make_env(f"{_OPEN_MPI} TOOL_NAME=mpirun VERSION=5.0.11 WORLD_LOCAL_SIZE=3 WORLD_SIZE=3", "OMPI_"),
    **make_env("PMIX_NAMESPACE=prterun-vm-18633@1 PMIX_RANK=1 PRTE_LAUNCHED=1"),
}
PRTERUN = make_env("PMIX_NAMESPACE=prterun-vm-16269@1 PMIX_RANK=1 PRTE_LAUNCHED=1")
MPICH = make_env("MPI_LOCALNRANKS=3 MPI_LOCALRANKID=1 PMI_FD=6 PMI_RANK=1 PMI_SIZE=3")
_OF_RANK = "RANK=1 SIZE=3 LOCAL_RANK=1 LOCAL_SIZE=3"
MVAPICH2 = make_env(_OF_RANK, "MV2_COMM_WORLD_") | make_env("MPIRUN_ID=4711 MPIRUN_NPROCS=3 PMI_ID=1")
JSM = make_env(_OF_RANK, "JSM_NAMESPACE_") | OPEN_MPI_5

_SCRIPT = "GTIDS=0 JOB_ID=4 LOCALID=0 NNODES=1 NODEID=0 NPROCS=2 NTASKS=2 PROCID=0 TASKS_PER_NODE=2"
SLURM_SCRIPT = make_env(_SCRIPT, "SLURM_")
"""The script of `sbatch -n 2`."""

SLURM_SHELL = make_env("JOB_ID=5 JOB_NUM_NODES=1 NNODES=1 NPROCS=2 NTASKS=2 TASKS_PER_NODE=2", "SLURM_")
"""The shell of `salloc -n 2`."""

SLURM_INTERACTIVE = SLURM_SHELL | make_env(
    "GTIDS=0 LOCALID=0 NODEID=0 PROCID=0 STEP_ID=4294967290 STEP_NUM_TASKS=1 STEP_TASKS_PER_NODE=1", "SLURM_"
)
"""The shell of `salloc -n 2` with `LaunchParameters=use_interactive_step`: a step of its own, on a node."""

SLURM_STEP = make_env(
    """GTIDS=0,1,2 JOB_ID=2 LOCALID=1 NNODES=1 NODEID=0 NPROCS=3 NTASKS=3 PROCID=1 STEP_ID=0
    STEP_NUM_NODES=1 STEP_NUM_TASKS=3 STEP_TASKS_PER_NODE=3 TASKS_PER_NODE=3""", "SLURM_"
)  # fmt: skip
SLURM_UNEVEN = SLURM_STEP | make_env(
    "GTIDS=2 LOCALID=0 NNODES=2 NODEID=1 PROCID=2 STEP_TASKS_PER_NODE=2,1 TASKS_PER_NODE=2,1", "SLURM_"
)
"""Two tasks on the first node, this one on the second."""

SLURM_PMI = make_env("PMI_FD=10 PMI_JOBID=3.0 PMI_RANK=1 PMI_SIZE=3")
"""What `srun --mpi=pmi2` adds; Flux adds the same without PMI_JOBID."""

SLURM_PMIX = make_env("PMIX_NAMESPACE=slurm.pmix.2.0 PMIX_RANK=1")
"""What `srun --mpi=pmix` adds."""

_PALS = "PALS_NODEID=0 PALS_RANKID=1 PMI_RANK=1 PMI_SIZE=3 PALS_SPOOL_DIR=/tmp/x"
_LOCAL = "PALS_LOCAL_RANKID=1 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=3"
SLURM_CRAY = make_env(f"{_PALS} {_LOCAL} PALS_APID=2.0 PMI_JOBID=2 PMI_UNIVERSE_SIZE=3")
"""What `srun --mpi=cray_shasta` adds."""

FLUX = make_env("JOB_ID=86872427233280 JOB_NNODES=1 JOB_SIZE=3 TASK_LOCAL_ID=1 TASK_RANK=1", "FLUX_")
FLUX_CRAY = make_env(f"{_PALS} PALS_APID=86872427233280")
"""What Flux's plugin cray-pals adds: no local rank."""

PALS = make_env(f"{_PALS} {_LOCAL} PALS_APID=0e2ab2c4-8c4d PALS_LOCAL_SIZE=3")
HOROVOD = make_env("RANK=1 SIZE=3 LOCAL_RANK=1 LOCAL_SIZE=3 CROSS_RANK=0 HOSTNAME=vm", "HOROVOD_")
DEEPSPEED = make_env(f"{_OF_RANK} WORLD_SIZE=3 CROSS_RANK=0 CROSS_SIZE=1 MASTER_PORT=29500")
TORCHRUN = make_env(
    """GROUP_RANK=0 LOCAL_RANK=1 LOCAL_WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=46479
    OMP_NUM_THREADS=1 RANK=1 ROLE_RANK=1 TORCHELASTIC_RUN_ID=ad3fef1b-0bb2-4a79 WORLD_SIZE=3"""
)
