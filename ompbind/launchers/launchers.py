"""All launchers: the variables that each sets for a rank, and the names of its processes.

To add a launcher: one row in `LAUNCHERS`.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from ompbind.errors import RequestError
from ompbind.programs.mpi import unbind
from ompbind.record import Record
from ompbind.text import whole_number

Env: TypeAlias = Mapping[str, str]


class Launcher(Record):
    """One launcher: its name in messages, the variables that it sets for a rank, and its processes.

    A rank needs the variables `rank`, `size` and `local_rank`; "" for one that the launcher does not set: its
    ranks cannot be identified. `local_size` is the variable with the number of ranks on this machine, or a
    function that finds it in the environment (0 if unknown); `assume_local_size` then assumes a number. The
    values of the variables `run_id` together identify the job. `daemons` are the names of the processes that
    start ranks. `step` is a variable that only ranks have, if scripts of jobs have `rank` too, and
    `job_steps` are its values for scripts and shells. `mark` is a variable that only this launcher sets, if
    users set the others by hand, and if its process can have any name; with `needs_mark` a rank must have it,
    because another launcher sets the other variables too. `example` is (description, command line) for the
    help.
    """

    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str | Callable[[Env], int]
    run_id: tuple[str, ...]
    daemons: tuple[str, ...]
    step: str = ""
    job_steps: tuple[str, ...] = ()
    mark: str = ""
    needs_mark: bool = False
    assume_local_size: Callable[[Env], int] | None = None
    example: tuple[str, str] | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """The variables that a rank needs."""
        mark = self.mark if self.needs_mark else ""
        return tuple(filter(None, (self.step, self.rank, self.size, self.local_rank, mark)))

    def is_complete(self, env: Env) -> bool:
        """Return whether an environment has all variables that a rank needs."""
        return bool(self.local_rank) and all(env.get(name) for name in self.needed)

    def is_script(self, env: Env) -> bool:
        """Return whether an environment belongs to the script or the shell of a job, which is no rank."""
        if not (self.step and env.get(self.rank)):
            return False
        return not env.get(self.step) or env.get(self.step) in self.job_steps

    def is_partial(self, env: Env) -> bool:
        """Return whether an environment has some of the variables that only a rank has, but not all."""
        has_some = bool(env.get(self.rank) or env.get(self.local_rank))
        return has_some and not (self.is_complete(env) or self.is_script(env))


def read_number(env: Env, name: str) -> int:
    """Return the number in a variable of a launcher; raises RequestError if it has none."""
    number = whole_number(env.get(name))
    if number is None:
        text = f"the launcher set {name}={env.get(name, '')!r}, which is not a number"
        raise RequestError(text, hint=f"do not change {name}, or give --local-rank and --local-size")
    return number


def _find_slurm_size(env: Env) -> int:
    """Return the number of tasks on this node, 0 if unknown; raises RequestError for contradictions.

    Slurm lists the tasks of this node as "0,1,2": also in heterogeneous jobs, which have one component on a
    node. Without this list, the tasks of all nodes are counted: "4(x2),3" is 4 on two nodes each, then 3.
    """
    if tasks := env.get("SLURM_GTIDS"):
        numbers = tasks.split(",")
        if env.get("SLURM_PROCID") not in numbers:
            text = f"SLURM_PROCID={env.get('SLURM_PROCID')} and SLURM_GTIDS={tasks} contradict each other"
            raise RequestError(text, hint="start ranks with srun, and do not set these variables")
        return len(numbers)
    text = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or ""
    node = read_number(env, "SLURM_NODEID") if env.get("SLURM_NODEID") else 0
    for match in re.finditer(r"([0-9]+)(?:\(x([0-9]+)\))?", text):
        nodes = whole_number(match[2] or "1") or 0
        if node < nodes:
            return whole_number(match[1]) or 0
        node -= nodes
    return 0


def _find_flux_size(env: Env) -> int:
    """Return the number of tasks on this node, 0 if unknown.

    Flux sets the numbers of all tasks and nodes only, and each node has a task at least. It is asked where
    these numbers leave several possibilities.
    """
    size, nodes = read_number(env, "FLUX_JOB_SIZE"), read_number(env, "FLUX_JOB_NNODES")
    if nodes in (1, size):
        return size if nodes == 1 else 1
    from ompbind.launchers.taskmap import count_node_tasks  # noqa: PLC0415 - door: Flux

    return count_node_tasks(env, read_number(env, "FLUX_TASK_RANK"))


def _assume_flux_size(env: Env) -> int:
    """Return the number of tasks on this node if all nodes have as many, 0 if that is not possible."""
    size, nodes = read_number(env, "FLUX_JOB_SIZE"), read_number(env, "FLUX_JOB_NNODES")
    equal = size // nodes if nodes and size % nodes == 0 else 0
    return equal if equal > read_number(env, "FLUX_TASK_LOCAL_ID") else 0


def _find_pals_size(env: Env) -> int:
    names = (name for name in ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE") if env.get(name))
    return next((read_number(env, name) for name in names), 0)


TORCHRUN = Launcher(
    name="torchrun",
    rank="RANK", size="WORLD_SIZE", local_rank="LOCAL_RANK", local_size="LOCAL_WORLD_SIZE",
    run_id=("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    daemons=("pt_elastic", "torchrun"),  # before PyTorch 2.5 torchrun or python
    mark="TORCHELASTIC_RUN_ID",
)  # fmt: skip

DEEPSPEED = Launcher(  # its process is "python": the mark finds it
    name="DeepSpeed",
    rank="RANK", size="WORLD_SIZE", local_rank="LOCAL_RANK", local_size="LOCAL_SIZE",
    run_id=("MASTER_PORT",), daemons=("deepspeed",),
    mark="CROSS_RANK", needs_mark=True,
)  # fmt: skip

SLURM = Launcher(
    name="Slurm",
    rank="SLURM_PROCID", size="SLURM_NTASKS", local_rank="SLURM_LOCALID", local_size=_find_slurm_size,
    run_id=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    daemons=("slurmstepd",),
    step="SLURM_STEP_ID",
    job_steps=(str(0xFFFFFFFA), str(0xFFFFFFFB)),  # the shell of salloc, the script of sbatch
    example=("Eight Slurm tasks", "srun -n 8 --cpu-bind=none ompbind exec -- ./app"),
)  # fmt: skip

CPUS_PER_TASK = "SLURM_CPUS_PER_TASK"
"""The variable with the CPUs that a user has requested for each task: hardware threads without a hint."""

_PRRTE = ("prterun", "prte", "prted")

LAUNCHERS = (
    TORCHRUN,
    DEEPSPEED,
    Launcher(  # `horovodrun --gloo`; with MPI it starts mpirun
        name="Horovod",
        rank="HOROVOD_RANK", size="HOROVOD_SIZE",
        local_rank="HOROVOD_LOCAL_RANK", local_size="HOROVOD_LOCAL_SIZE",
        run_id=("HOROVOD_GLOO_RENDEZVOUS_PORT",), daemons=("horovodrun",), mark="HOROVOD_RANK",
    ),
    Launcher(  # version 4, and version 5, which starts ranks with PRRTE
        name="Open MPI",
        rank="OMPI_COMM_WORLD_RANK", size="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK", local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
        run_id=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
        daemons=("mpirun", "mpirun.openmpi", "mpiexec", "mpiexec.openmpi", "orterun", "orted", *_PRRTE),
        example=("Four MPI ranks", "mpirun -n 4 --bind-to none ompbind exec -- ./app"),
    ),
    Launcher(  # MPICH's Hydra, and the launchers derived from it: Intel MPI, MVAPICH
        name="MPICH or Intel MPI",
        rank="PMI_RANK", size="PMI_SIZE", local_rank="MPI_LOCALRANKID", local_size="MPI_LOCALNRANKS",
        run_id=("PMI_JOBID",), daemons=("hydra_pmi_proxy",),
        example=("The same with MPICH", "mpiexec.hydra -n 4 -bind-to none ompbind exec -- ./app"),
    ),
    Launcher(  # MVAPICH2's mpirun_rsh
        name="MVAPICH2",
        rank="MV2_COMM_WORLD_RANK", size="MV2_COMM_WORLD_SIZE",
        local_rank="MV2_COMM_WORLD_LOCAL_RANK", local_size="MV2_COMM_WORLD_LOCAL_SIZE",
        run_id=("MPIRUN_ID",), daemons=("mpispawn",),
    ),
    Launcher(  # jsrun, on IBM's systems with LSF; it sets the variables of Open MPI too
        name="JSM",
        rank="JSM_NAMESPACE_RANK", size="JSM_NAMESPACE_SIZE",
        local_rank="JSM_NAMESPACE_LOCAL_RANK", local_size="JSM_NAMESPACE_LOCAL_SIZE",
        run_id=("PMIX_NAMESPACE",), daemons=("jsmd",),
    ),
    # HPE Cray systems. PALS sets the number of all ranks in the variables of PMI only. The PMI plugins of
    # Slurm and Flux set some of the variables of PALS too.
    Launcher(
        name="PALS",
        rank="PALS_RANKID", size="PMI_SIZE", local_rank="PALS_LOCAL_RANKID", local_size=_find_pals_size,
        run_id=("PALS_APID",), daemons=("palsd",),
    ),
    Launcher(
        name="Flux",
        rank="FLUX_TASK_RANK", size="FLUX_JOB_SIZE",
        local_rank="FLUX_TASK_LOCAL_ID", local_size=_find_flux_size, assume_local_size=_assume_flux_size,
        run_id=("FLUX_JOB_ID",), daemons=("flux-shell",),
    ),
    SLURM,
    # PRRTE without Open MPI (`prterun`, `prun`) sets the rank, but neither the local rank nor any number of
    # ranks: a rank has to ask the server of PRRTE with the PMIx library.
    Launcher(
        name="PRRTE",
        rank="PMIX_RANK", size="", local_rank="", local_size="",
        run_id=("PMIX_NAMESPACE",), daemons=_PRRTE,
    ),
)  # fmt: skip
"""All known launchers; where their processes are hidden, the first one with complete variables counts.

torchrun, DeepSpeed and Horovod are started by the others, but start none of them. mpirun is started in jobs
of PALS, Flux and Slurm, and Flux in jobs of Slurm. PALS sets no rank of its own for the ranks of a Hydra.
"""

OTHER_RANKS = ("JSM_NAMESPACE_RANK", "MV2_COMM_WORLD_RANK", "ALPS_APP_PE")
"""Variables with a rank that cause a warning, and no error, where a rank cannot be identified by them.

ALPS sets no local rank. JSM and MVAPICH2 set all variables of their rows according to their documentation.
"""


def render_unbound(name: str, env: Env) -> str:
    """Return the words that start a launcher with the option by which it binds no rank, "" if unknown."""
    example = next((row.example for row in LAUNCHERS if row.name == name), None)
    return unbind(example[1].split()[0], env) if example else ""


def may_have_launcher(env: Env) -> bool:
    """Return whether a launcher may have started this process: it has set a local rank."""
    return any(launcher.local_rank in env for launcher in LAUNCHERS)
