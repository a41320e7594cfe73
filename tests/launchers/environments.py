"""The variables that launchers set for a rank, as ranks have printed them: those about ranks and jobs.

Open MPI 4.1.4 and 5.0.11, prterun of 5.0.11, MPICH 4.0.2, Intel MPI 2021.18, Slurm 22.05 and torchrun 2.13
were run on one machine, Slurm also with two `slurmd`. Flux and PALS are from the source of Flux's shell, of
Slurm's plugin mpi/cray_shasta, and from scripts of users of PALS.
"""

OPEN_MPI_4 = {
    "OMPI_APP_CTX_NUM_PROCS": "1 2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_FIRST_RANKS": "0 0",
    "OMPI_MCA_ess_base_jobid": "1087307777",
    "OMPI_MCA_orte_ess_num_procs": "3",
    "OMPI_MCA_orte_num_nodes": "1",
    "OMPI_NUM_APP_CTX": "2",
    "OMPI_UNIVERSE_SIZE": "2",
    "PMIX_ID": "1087307777.1",
    "PMIX_NAMESPACE": "1087307777",
    "PMIX_RANK": "1",
}
"""`mpirun -n 1 A : -n 2 B`: two programs, numbered together."""

OPEN_MPI_5 = {
    "OMPI_APP_CTX_NUM_PROCS": "1 2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_NUM_APP_CTX": "2",
    "OMPI_TOOL_NAME": "mpirun",
    "OMPI_UNIVERSE_SIZE": "2",
    "OMPI_VERSION": "5.0.11",
    "OMPI_WORLD_LOCAL_SIZE": "3",
    "OMPI_WORLD_SIZE": "3",
    "PMIX_NAMESPACE": "prterun-vm-18633@1",
    "PMIX_RANK": "1",
    "PRTE_LAUNCHED": "1",
}

PRTERUN = {"PMIX_NAMESPACE": "prterun-vm-16269@1", "PMIX_RANK": "1", "PRTE_LAUNCHED": "1"}

MPICH = {"MPI_LOCALNRANKS": "3", "MPI_LOCALRANKID": "1", "PMI_FD": "6", "PMI_RANK": "1", "PMI_SIZE": "3"}

INTEL_MPI = {
    **MPICH,
    "HYDRA_BSTRAP_LAUNCHER": "fork",
    "HYDRA_BSTRAP_LOCALHOST": "vm",
    "I_MPI_HYDRA_UUID": "953f0000-a8e5-58f6-ec60-06000ea27c44",
    "I_MPI_PIN_MAPPING": "2:0 0,1 1",
}

SLURM_SCRIPT = {
    "ENVIRONMENT": "BATCH",
    "SLURM_GTIDS": "0",
    "SLURM_JOB_ID": "4",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NNODES": "1",
    "SLURM_NODEID": "0",
    "SLURM_NPROCS": "2",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_TASKS_PER_NODE": "2",
}
"""The script of `sbatch -n 2`."""

SLURM_SHELL = {
    "SLURM_JOB_ID": "5",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NNODES": "1",
    "SLURM_NPROCS": "2",
    "SLURM_NTASKS": "2",
    "SLURM_TASKS_PER_NODE": "2",
}
"""The shell of `salloc -n 2`."""

SLURM_INTERACTIVE = {
    **SLURM_SHELL,
    "SLURM_GTIDS": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
    "SLURM_STEP_ID": "4294967290",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}
"""The shell of `salloc -n 2` with `LaunchParameters=use_interactive_step`: a step of its own, on a node."""

SLURM_STEP = {
    "SLURM_GTIDS": "0,1,2",
    "SLURM_JOB_ID": "2",
    "SLURM_LOCALID": "1",
    "SLURM_NNODES": "1",
    "SLURM_NODEID": "0",
    "SLURM_NPROCS": "3",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "3",
    "SLURM_TASKS_PER_NODE": "3",
}

SLURM_UNEVEN = {
    **SLURM_STEP,
    "SLURM_GTIDS": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NNODES": "2",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_TASKS_PER_NODE": "2,1",
}
"""Two tasks on the first node, this one on the second."""

SLURM_HETEROGENEOUS = {
    **SLURM_UNEVEN,
    "SLURM_GTIDS": "1,2",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_ID_HET_GROUP_0": "2",
    "SLURM_JOB_ID_HET_GROUP_1": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NPROCS_HET_GROUP_0": "1",
    "SLURM_NPROCS_HET_GROUP_1": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1,2",
    "SLURM_TASKS_PER_NODE": "1,2",
    "SLURM_TASKS_PER_NODE_HET_GROUP_0": "1",
    "SLURM_TASKS_PER_NODE_HET_GROUP_1": "2",
}
"""`salloc -n 1 : -n 2 srun --het-group=0,1`: the second task of the second component."""

SLURM_PMI = {"PMI_FD": "10", "PMI_JOBID": "3.0", "PMI_RANK": "1", "PMI_SIZE": "3"}
"""What `srun --mpi=pmi2` adds; Flux adds the same without PMI_JOBID."""

SLURM_PMIX = {"PMIX_NAMESPACE": "slurm.pmix.2.0", "PMIX_RANK": "1"}
"""What `srun --mpi=pmix` adds."""

SLURM_CRAY = {
    "PALS_APID": "2.0",
    "PALS_LOCAL_RANKID": "1",
    "PALS_NODEID": "0",
    "PALS_RANKID": "1",
    "PALS_SPOOL_DIR": "/var/spool/slurmd/mpi_cray_shasta/2.0",
    "PMI_JOBID": "2",
    "PMI_LOCAL_RANK": "1",
    "PMI_LOCAL_SIZE": "3",
    "PMI_RANK": "1",
    "PMI_SIZE": "3",
    "PMI_UNIVERSE_SIZE": "3",
}
"""What `srun --mpi=cray_shasta` adds."""

FLUX = {
    "FLUX_JOB_ID": "86872427233280",
    "FLUX_JOB_NNODES": "1",
    "FLUX_JOB_SIZE": "3",
    "FLUX_TASK_LOCAL_ID": "1",
    "FLUX_TASK_RANK": "1",
}

FLUX_CRAY = {
    "PALS_APID": "86872427233280",
    "PALS_NODEID": "0",
    "PALS_RANKID": "1",
    "PALS_SPOOL_DIR": "/tmp/flux",
    "PMI_RANK": "1",
    "PMI_SIZE": "3",
}
"""What Flux's plugin cray-pals adds: no local rank."""

PALS = {
    "PALS_APID": "0e2ab2c4-8c4d-4a6f-9d2e-3ea1a8f3f8b5",
    "PALS_LOCAL_RANKID": "1",
    "PALS_LOCAL_SIZE": "3",
    "PALS_NODEID": "0",
    "PALS_RANKID": "1",
    "PALS_SPOOL_DIR": "/var/run/palsd/0e2ab2c4",
    "PMI_LOCAL_RANK": "1",
    "PMI_LOCAL_SIZE": "3",
    "PMI_RANK": "1",
    "PMI_SIZE": "3",
}

TORCHRUN = {
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "3",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "46479",
    "OMP_NUM_THREADS": "1",
    "RANK": "1",
    "ROLE_RANK": "1",
    "ROLE_WORLD_SIZE": "3",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_RUN_ID": "ad3fef1b-0bb2-4a79-8b9c-dda659cb1ae7",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "WORLD_SIZE": "3",
}
