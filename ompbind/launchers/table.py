"""The engine that started this process, if one did: which rank of the job it is, here and overall.

An *engine* (a launcher) starts processes over many machines; `LAUNCHERS` has all that are known.
Variables are looked at innermost first: `mpirun` inside a Slurm job sets its own beside Slurm's.
"""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.launchers.flux import FLUX
from ompbind.launchers.launcher import Env, number_in
from ompbind.launchers.mpich import MPICH
from ompbind.launchers.open_mpi import OPEN_MPI
from ompbind.launchers.slurm import SLURM
from ompbind.launchers.torchrun import TORCHRUN
from ompbind.machine.sources.filesystem import Root, whole_number
from ompbind.machine.sources.linux.cgroup import read_limits
from ompbind.planning.rank_command import RankIdentity
from ompbind.planning.rank_variables import OMPBIND_RANK
from ompbind.procfs.process import status_value
from ompbind.record import Record


class LauncherRank(Record):
    """One rank as its engine tells it; `run_id` is the same text for all ranks of the job.

    `identity.local_size` is 0 where the engine does not tell how many ranks are on this machine. Where it
    does not tell a name of the job, `run_id` is the same only for the ranks of this machine.
    """

    engine: str
    identity: RankIdentity
    run_id: str


LAUNCHERS = (OPEN_MPI, MPICH, FLUX, TORCHRUN, SLURM)
"""All launchers that are known, innermost first."""


def launcher_names() -> str:
    """Name all launchers, for messages and help."""
    return ", ".join(one.name for one in LAUNCHERS)


def find_launcher(env: Env, parent: int) -> LauncherRank | None:
    """Return the rank that the environment tells of, None when no engine started this process.

    `parent` is the pid of this process's parent, which names the run where the engine does not. A rank of
    `ompbind run` is none: it has its CPUs already. Raises RequestError for variables that contradict
    each other.
    """
    if OMPBIND_RANK in env and env.get(OMPBIND_RANK) == env.get("RANK"):
        env = {name: value for name, value in env.items() if name not in ("RANK", "LOCAL_RANK")}
    launcher = next((one for one in LAUNCHERS if one.rank in env and one.local_rank in env), None)
    if launcher is None:
        return None
    identity = RankIdentity(
        slot=number_in(env, launcher.local_rank),
        rank=number_in(env, launcher.rank),
        size=number_in(env, launcher.size),
        local_rank=number_in(env, launcher.local_rank),
        local_size=number_in(env, size) if isinstance(size := launcher.local_size, str) else size(env),
    )
    if identity.rank >= identity.size or (identity.local_size and identity.local_rank >= identity.local_size):
        raise RequestError(
            f"{launcher.name} says rank {identity.rank} of {identity.size}, "
            f"here {identity.local_rank} of {identity.local_size}",
            hint=f"{launcher.rank}, {launcher.size} and {launcher.local_rank} contradict each other",
        )
    parts = [env[name] for name in launcher.run_id if env.get(name)] or [str(parent)]
    run_id = "-".join([launcher.name.lower().replace(" ", ""), *parts]).replace("/", "_")
    return LauncherRank(engine=launcher.name, identity=identity, run_id=run_id)


def is_bound(root: Root, pid: int, allowed: CpuSet) -> bool:
    """Tell whether the engine has left a rank fewer CPUs than all its ranks here may use together.

    `pid` is the rank's process and `allowed` what it may use. The engine's own process is the measure:
    its nearest ancestor with the name of an engine's daemon, else the parent, within the same cpuset.
    """
    ancestors = list(_ancestors(root, pid))
    daemons = {name for one in LAUNCHERS for name in one.daemons}
    daemon = next((one for one in ancestors if _status(root, one, "Name") in daemons), None)
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
    return status_value(root.read(f"proc/{pid}/status") or "", key) or ""
