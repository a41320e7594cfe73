"""The engine that started this process, if one did: which rank of the job it is, here and overall.

An *engine* starts processes over many machines: Slurm, Open MPI / PRRTE, MPICH hydra, Flux, torchrun.
Variables are looked at innermost first: `mpirun` inside a Slurm job sets its own beside Slurm's.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.machine.sources.filesystem import Root, keyed_lines, whole_number
from ompbind.machine.sources.linux.cgroup import read_limits
from ompbind.planning.rank_command import Seat
from ompbind.record import Record

Env = Mapping[str, str]


class EngineRank(Record):
    """One rank as its engine tells it; `run_id` is the same text for all ranks of the job.

    `seat.local_size` is 0 where the engine does not tell how many ranks are on this machine. Where it
    does not tell a name of the job, `run_id` is the same only for the ranks of this machine.
    """

    engine: str
    seat: Seat
    run_id: str


class _Names(Record):
    """The variables in which an engine tells the rank, the size, and both for this machine."""

    engine: str
    rank: str
    size: str
    local_rank: str
    local_size: str
    run_id: tuple[str, ...]


_ENGINES = (
    _Names(
        engine="Open MPI",
        rank="OMPI_COMM_WORLD_RANK",
        size="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
        run_id=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Names(
        engine="MPICH",
        rank="PMI_RANK",
        size="PMI_SIZE",
        local_rank="MPI_LOCALRANKID",
        local_size="MPI_LOCALNRANKS",
        run_id=("PMI_JOBID",),
    ),
    _Names(
        engine="Flux",
        rank="FLUX_TASK_RANK",
        size="FLUX_JOB_SIZE",
        local_rank="FLUX_TASK_LOCAL_ID",
        local_size="",
        run_id=("FLUX_JOB_ID",),
    ),
    _Names(
        engine="torchrun",
        rank="RANK",
        size="WORLD_SIZE",
        local_rank="LOCAL_RANK",
        local_size="LOCAL_WORLD_SIZE",
        run_id=("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    ),
    _Names(
        engine="Slurm",
        rank="SLURM_PROCID",
        size="SLURM_NTASKS",
        local_rank="SLURM_LOCALID",
        local_size="",
        run_id=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)
"""Every engine that is known, innermost first."""


def find_engine(env: Env, parent: int) -> EngineRank | None:
    """Return the rank that the environment tells of, None when no engine started this process.

    `parent` is the pid of this process's parent, which names the run where the engine does not. A rank of
    `ompbind run` is none: it has its CPUs already. Raises RequestError for variables that contradict
    each other.
    """
    if "OMPBIND_RANK" in env and env.get("OMPBIND_RANK") == env.get("RANK"):
        env = {name: value for name, value in env.items() if name not in ("RANK", "LOCAL_RANK")}
    names = next((one for one in _ENGINES if one.rank in env and one.local_rank in env), None)
    if names is None:
        return None
    seat = Seat(
        slot=_number(env, names.local_rank),
        rank=_number(env, names.rank),
        size=_number(env, names.size),
        local_rank=_number(env, names.local_rank),
        local_size=_number(env, names.local_size) if names.local_size else _LOCAL_SIZES[names.engine](env),
    )
    if seat.rank >= seat.size or (seat.local_size and seat.local_rank >= seat.local_size):
        raise RequestError(
            f"{names.engine} says rank {seat.rank} of {seat.size}, "
            f"here {seat.local_rank} of {seat.local_size}",
            hint=f"{names.rank}, {names.size} and {names.local_rank} contradict each other",
        )
    parts = [env[name] for name in names.run_id if env.get(name)] or [str(parent)]
    run_id = "-".join([names.engine.lower().replace(" ", ""), *parts]).replace("/", "_")
    return EngineRank(engine=names.engine, seat=seat, run_id=run_id)


def _number(env: Env, name: str) -> int:
    number = whole_number(env.get(name))
    if number is None:
        raise RequestError(f"the engine set {name}={env.get(name, '')!r}, which is not a number")
    return number


def _slurm_local_size(env: Env) -> int:
    """Return the tasks of this node from text such as "4(x2),3", which counts node after node."""
    text = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or ""
    node = _number(env, "SLURM_NODEID") if env.get("SLURM_NODEID") else 0
    counts = [
        int(match[1])
        for match in re.finditer(r"(\d+)(?:\(x(\d+)\))?", text)
        for _ in range(min(int(match[2] or 1), node + 1))
    ]
    return counts[node] if node < len(counts) else 0


def _flux_local_size(env: Env) -> int:
    """Return the tasks of this node, which Flux does not tell, where they divide evenly; else 0."""
    size, nodes = _number(env, "FLUX_JOB_SIZE"), _number(env, "FLUX_JOB_NNODES")
    return size // nodes if nodes and size % nodes == 0 else 0


_LOCAL_SIZES: Mapping[str, Callable[[Env], int]] = {"Slurm": _slurm_local_size, "Flux": _flux_local_size}

_DAEMONS = frozenset(
    (
        "mpirun", "mpiexec", "prterun", "prte", "prted", "orterun", "orted", "hydra_pmi_proxy",
        "mpiexec.hydra", "slurmstepd", "flux-shell", "torchrun",
    )
)  # fmt: skip
"""Names of the processes by which engines start ranks."""


def is_bound_by_engine(root: Root, pid: int, allowed: CpuSet) -> bool:
    """Tell whether the engine has left a rank fewer CPUs than all its ranks here may use together.

    `pid` is the rank's process and `allowed` what it may use. The engine's own process is the measure:
    its nearest ancestor with the name of an engine's daemon, else the parent, within the same cpuset.
    """
    ancestors = list(_ancestors(root, pid))
    daemon = next((one for one in ancestors if _status(root, one, "Name") in _DAEMONS), None)
    chosen = daemon or next(iter(ancestors), pid)
    try:
        daemon_cpus = CpuSet.from_list(_status(root, chosen, "Cpus_allowed_list"))
    except ValueError:
        return False
    limit = read_limits(root).cpuset
    return bool((daemon_cpus if limit is None else daemon_cpus & limit) - allowed)


def _ancestors(root: Root, pid: int) -> Iterator[int]:
    """Yield the parent of a process, its parent, and so on, up to the first process of the system."""
    for _ in range(64):
        pid = whole_number(_status(root, pid, "PPid")) or 0
        if pid <= 1:
            return
        yield pid


def _status(root: Root, pid: int, key: str) -> str:
    """Return one value of `proc/PID/status`, "" where there is none."""
    return next((value for name, value in keyed_lines(root.read(f"proc/{pid}/status")) if name == key), "")
