"""Find the launcher that started this process, and the rank that the process is.

A *launcher* starts the ranks of a job on many machines; `LAUNCHERS` has all known ones. Launchers can be
nested: `mpirun` in a Slurm job adds its own variables to Slurm's variables. The innermost launcher counts.
"""

from __future__ import annotations

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.launchers.flux import FLUX
from ompbind.launchers.launcher import Env, Launcher, read_number
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

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterator


class LauncherRank(Record):
    """One rank, as its launcher describes it.

    `launcher` is the name of the launcher. `identity.local_size` is 0 if the number of ranks on this machine
    is unknown. `run_id` is the same for all ranks of the job; if the launcher does not identify the job, it
    is the same only for the ranks of this machine.
    """

    launcher: str
    identity: RankIdentity
    run_id: str


LAUNCHERS = (OPEN_MPI, MPICH, FLUX, TORCHRUN, SLURM)
"""All known launchers, innermost first."""


def render_launcher_names() -> str:
    """Return the names of all launchers, for messages and help."""
    return ", ".join(launcher.name for launcher in LAUNCHERS)


def find_launcher(env: Env, parent: int) -> LauncherRank | None:
    """Return the rank that the environment describes, None if no launcher started this process.

    `parent` is the pid of the parent process: it identifies the job if the launcher does not. Raises
    RequestError if variables contradict each other.
    """
    # `ompbind run` sets RANK and LOCAL_RANK as torchrun does, but is no launcher: its ranks are bound already
    if OMPBIND_RANK in env and env.get(OMPBIND_RANK) == env.get("RANK"):
        env = {name: value for name, value in env.items() if name not in ("RANK", "LOCAL_RANK")}
    launcher = next((known for known in LAUNCHERS if _is_complete(known, env)), None)
    if launcher is None:
        return None
    identity = RankIdentity(
        placement_index=read_number(env, launcher.local_rank),
        rank=read_number(env, launcher.rank),
        size=read_number(env, launcher.size),
        local_rank=read_number(env, launcher.local_rank),
        local_size=read_number(env, size) if isinstance(size := launcher.local_size, str) else size(env),
    )
    if identity.rank >= identity.size or (identity.local_size and identity.local_rank >= identity.local_size):
        raise RequestError(
            f"{launcher.name} says rank {identity.rank} of {identity.size}, "
            f"local rank {identity.local_rank} of {identity.local_size}",
            hint=f"{launcher.rank}, {launcher.size} and {launcher.local_rank} contradict each other",
        )
    parts = [env[name] for name in launcher.run_id if env.get(name)] or [str(parent)]
    run_id = "-".join([launcher.name.lower().replace(" ", ""), *parts]).replace("/", "_")
    return LauncherRank(launcher=launcher.name, identity=identity, run_id=run_id)


def find_batch_script(env: Env, parent: int) -> Launcher | None:
    """Return the launcher whose batch job this process is the script of, None if it is a rank or no script.

    The script has the variables of rank 0 of the job, but is no rank. `parent` is as for `find_launcher`.
    """
    scripts = (known for known in LAUNCHERS if known.step and known.step not in env and known.rank in env)
    return next(scripts, None) if find_launcher(env, parent) is None else None


def _is_complete(launcher: Launcher, env: Env) -> bool:
    """Return whether an environment has the variables that only a rank of a launcher has."""
    return all(name in env for name in (launcher.rank, launcher.local_rank, launcher.step) if name)


def find_copies(env: Env, pid: int) -> LauncherRank | None:
    """Return the rank of a process if its launcher has started several copies of it on this machine.

    None for a rank of `ompbind exec`. `pid` is the process.
    """
    try:
        rank = find_launcher(env, pid) if OMPBIND_RANK not in env else None
    except RequestError:  # the variables contradict each other
        return None
    return rank if rank and rank.identity.local_size > 1 else None


def is_bound(root: Root, pid: int, allowed: CpuSet) -> bool:
    """Return whether the launcher has bound a rank, so that it has fewer CPUs than the launcher itself.

    `pid` is the process of the rank, `allowed` its allowed CPUs. They are compared with the CPUs of the
    launcher's daemon: the nearest ancestor with the name of a daemon, or else the parent. CPUs of the daemon
    outside the cpuset of the rank do not count.
    """
    ancestors = list(_find_ancestors(root, pid))
    names = {name for launcher in LAUNCHERS for name in launcher.daemons}
    daemons = (ancestor for ancestor in ancestors if _read_status(root, ancestor, "Name") in names)
    daemon = next(daemons, None) or next(iter(ancestors), pid)
    try:
        daemon_cpus = CpuSet.from_list(_read_status(root, daemon, "Cpus_allowed_list"))
    except ValueError:
        return False
    limit = read_limits(root).cpuset
    return bool((daemon_cpus if limit is None else daemon_cpus & limit) - allowed)


def _find_ancestors(root: Root, pid: int) -> Iterator[int]:
    """Yield the parent of a process, its parent, and so on, up to the first process of the system."""
    for _ in range(64):
        pid = whole_number(_read_status(root, pid, "PPid")) or 0
        if pid <= 1:
            return
        yield pid


def _read_status(root: Root, pid: int, key: str) -> str:
    """Return one value of `proc/PID/status`, "" if there is none."""
    return status_value(root.read(f"proc/{pid}/status") or "", key) or ""
