"""Find the launcher that started this process, and the rank that the process is.

A *launcher* starts the ranks of a job on many machines. Launchers can be nested: `mpirun` in a Slurm job
adds its own variables to Slurm's variables. The innermost launcher counts: of the launchers with complete
variables, the launcher whose daemon is the nearest ancestor of the rank.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from ompbind.commands.environment import RankIdentity
from ompbind.commands.rank_variables import OMPBIND_GROUP_RANK, OMPBIND_RANK, SUPERVISOR_NAME
from ompbind.cpuset import CpuSet, join_words
from ompbind.errors import RequestError
from ompbind.launchers import launchers
from ompbind.launchers.launchers import LAUNCHERS, OTHER_RANKS, TORCHRUN, Env, Launcher, read_number
from ompbind.machine.read.linux_cgroup import read_limits
from ompbind.machine.read.root import DirectoryRoot, Root
from ompbind.procfs.parsers import status_value
from ompbind.procfs.reader import read_affinity, read_command_line, read_processes
from ompbind.record import Record
from ompbind.text import whole_number

_SYSTEM = DirectoryRoot("/")


class Ancestor(Record):
    """The pid and the name of the parent of a rank, of its parent, and so on."""

    pid: int
    name: str


class LauncherRank(Record):
    """One rank, as its launcher describes it.

    `starter` is the pid of the launcher's process that started the rank, None if this is hidden. `run_id` is
    the same for all ranks of the job, or only for the ranks of this machine if the job has no identity.
    `identity.local_size` is 0 if unknown; with `assumes_local_size` it may be wrong.
    """

    launcher: str
    identity: RankIdentity
    run_id: str
    starter: int | None = None
    assumes_local_size: bool = False


def render_launcher_names() -> str:
    """Return the names of all launchers whose ranks can be found."""
    return ", ".join(launcher.name for launcher in LAUNCHERS if launcher.local_rank)


def find_launcher(env: Env, ancestors: Iterable[Ancestor] = ()) -> LauncherRank | None:
    """Return the rank that the environment describes, None if no launcher started this process.

    `ancestors` are read only if there is a launcher. Raises RequestError if the variables of the launcher
    contradict each other, or if some of them are missing.
    """
    own_rank = env.get(OMPBIND_GROUP_RANK) or env.get(OMPBIND_RANK)
    is_marked = env.get(TORCHRUN.mark) or env.get(launchers.DEEPSPEED.mark)
    if own_rank is not None and own_rank == env.get("RANK") and not is_marked:
        # ompbind has set the variables of torchrun, but is no launcher: its ranks are bound. torchrun in a
        # rank of ompbind sets the variables again, and its mark; so does DeepSpeed.
        own = (*TORCHRUN.needed, "LOCAL_WORLD_SIZE")
        env = {name: value for name, value in env.items() if name not in own}
    complete = [launcher for launcher in LAUNCHERS if launcher.is_complete(env)]
    if not complete:
        _refuse_partial(env)
        return None
    processes = tuple(ancestors)
    scripts = [launcher for launcher in LAUNCHERS if launcher.is_script(env)]
    launcher = _find_innermost([*complete, *scripts], processes, env)
    if launcher is None or launcher in scripts:
        return None
    identity = _read_identity(launcher, env)
    is_assumed = not identity.local_size
    if is_assumed and launcher.assume_local_size:
        identity = identity.replace(local_size=launcher.assume_local_size(env))
    starter = find_starter(processes, launcher.daemons)
    word = launcher.name.partition(" or ")[0].replace(" ", "").lower()
    parts = [env[name] for name in launcher.run_id if env.get(name)] or [str(starter or 1)]
    return LauncherRank(
        launcher=launcher.name,
        identity=identity,
        run_id="-".join([word, *parts]).replace("/", "_"),
        starter=starter,
        assumes_local_size=is_assumed,
    )


def read_local_rank(env: Env) -> int:
    """Return the local rank of a process, 0 without a launcher: rank 0 prints the whole error that all have.

    Where launchers are nested, the largest number counts: 0 is the first rank under all of them. Variables
    that are incomplete, as an exported LOCAL_RANK, only count if no launcher has set all of its own.
    """
    complete = [launcher for launcher in LAUNCHERS if launcher.is_complete(env)]
    numbers = (whole_number(env.get(launcher.local_rank)) for launcher in complete or LAUNCHERS)
    return max((number for number in numbers if number is not None), default=0)


def find_batch_script(env: Env, ancestors: Iterable[Ancestor] = ()) -> Launcher | None:
    """Return the launcher whose job this process is the script or shell of, None if it is neither.

    The script has the variables of rank 0 of the job, but is no rank. `ancestors` as for `find_launcher`.
    """
    script = next((launcher for launcher in LAUNCHERS if launcher.is_script(env)), None)
    return script if script and find_launcher(env, ancestors) is None else None


def is_task(env: Env, ancestors: Iterable[Ancestor] = ()) -> bool:
    """Return whether a launcher or ompbind has started this process as a rank, identified or not."""
    try:
        return OMPBIND_RANK in env or find_launcher(env, ancestors) is not None
    except RequestError:
        return True


def find_copies(env: Env, ancestors: Iterable[Ancestor] = ()) -> LauncherRank | None:
    """Return the rank of a process, but not of `ompbind exec`, if its launcher has started copies here."""
    try:
        rank = find_launcher(env, ancestors) if OMPBIND_RANK not in env else None
    except RequestError:  # variables contradict each other, or some are missing
        return None
    return rank if rank and rank.identity.local_size > 1 else None


def _find_innermost(
    candidates: Sequence[Launcher], processes: Sequence[Ancestor], env: Env
) -> Launcher | None:
    """Return the innermost launcher, None if that is `ompbind run`.

    A launcher whose process can have any name counts if its mark is there, unless the process of another
    launcher is the parent. Where all processes are hidden, the first launcher counts; variables without the
    mark may be set by hand.
    """
    by_daemon: dict[str, Launcher | None] = {SUPERVISOR_NAME: None} if OMPBIND_RANK in env else {}
    for launcher in reversed(candidates):
        by_daemon.update(dict.fromkeys(launcher.daemons, launcher))
    nearest = find_daemon(processes, by_daemon)
    if nearest is None or processes[0] is not nearest:
        signed = (known for known in candidates if env.get(known.mark))
        if unseen := next((known for known in signed if not find_daemon(processes, known.daemons)), None):
            return unseen
    if nearest:
        return by_daemon[nearest.name]
    return min(candidates, key=lambda known: bool(known.mark) and not env.get(known.mark))


def _read_identity(launcher: Launcher, env: Env) -> RankIdentity:
    local_rank, rank, size = (
        read_number(env, name) for name in (launcher.local_rank, launcher.rank, launcher.size)
    )
    known = launcher.local_size
    if isinstance(known, str):
        local_size = read_number(env, known) if env.get(known) else 0
    else:
        local_size, known = known(env), "the number of ranks on this machine"
    local_rank_text, local_size_text = f"{launcher.local_rank}={local_rank}", f"{known}={local_size}"
    rank_text, size_text = f"{launcher.rank}={rank}", f"{launcher.size}={size}"
    for is_wrong, first, second in (
        (rank >= size, rank_text, size_text),
        (local_size and local_rank >= local_size, local_rank_text, local_size_text),
        (local_size > size, local_size_text, size_text),
    ):
        if is_wrong:
            raise RequestError(
                f"{first} and {second} contradict each other; {launcher.name} sets them for each rank",
                hint="do not change these variables, or give --local-rank and --local-size",
            )
    return RankIdentity(
        placement_index=local_rank, rank=rank, size=size, local_rank=local_rank, local_size=local_size
    )


def _refuse_partial(env: Env) -> None:
    launchers = [launcher for launcher in LAUNCHERS if launcher.rank not in OTHER_RANKS]
    partial = [launcher for launcher in launchers if launcher.is_partial(env)]
    by_size = [known for known in launchers if env.get(known.size) and not known.step]  # only ranks have it
    launcher = next(iter(partial or by_size), None)
    if launcher is None:
        return
    given = [name for name in launcher.needed if env.get(name)]
    missing = [name for name in launcher.needed if not env.get(name)]
    lacks = f"{_list_names(missing)} not set" if missing else f"{launcher.name} sets no local rank"
    text = f"{_list_names(given)} set, as {launcher.name} does, but {lacks}"
    other = "" if launcher.local_rank else "start ranks with 'prterun --personality ompi', or "
    hint = f"{other}give --local-rank and --local-size; for a single rank these are 0 and 1"
    raise RequestError(text, hint=hint)


def _list_names(names: Sequence[str]) -> str:
    return f"{join_words(names)} {'are' if len(names) > 1 else 'is'}"


def read_ancestors(root: Root = _SYSTEM, pid: int | str = "self") -> Iterator[Ancestor]:
    """Yield the parent of a process, its parent, and so on, up to the first process of the system."""
    status = _read_status(root, pid)
    for _ in range(64):
        pid = whole_number(status_value(status, "PPid")) or 0
        if pid <= 1:
            return
        status = _read_status(root, pid)
        yield Ancestor(pid=pid, name=status_value(status, "Name") or "")


def find_daemon(ancestors: Iterable[Ancestor], names: Iterable[str]) -> Ancestor | None:
    """Return the nearest ancestor with one of some names; None if no ancestor has, or if it is hidden."""
    known = set(names)
    return next((ancestor for ancestor in ancestors if ancestor.name in known), None)


def find_agent(rank: LauncherRank, env: Env) -> tuple[int, int]:
    """Return the index among the agents of torchrun that divide this machine, and how many these are.

    No variable says that agents run on one machine. All agents exist before the first one starts a rank, and
    in one job their command lines differ in the number of the node only. Agents with other CPUs do not count.
    """
    if rank.launcher != TORCHRUN.name or (whole_number(env.get("GROUP_WORLD_SIZE")) or 1) < 2:
        return 0, 1
    named = {pid: stat for pid, stat in read_processes().items() if stat.name in TORCHRUN.daemons}
    jobs = {
        pid: (re.sub(_NODE_RANK, "", "\0".join(read_command_line(pid))), read_affinity(pid))
        for pid, stat in named.items()
        if stat.parent not in named  # else it is about to become a rank
    }
    agents = sorted(pid for pid, job in jobs.items() if job == jobs.get(rank.starter or 0))
    return (agents.index(rank.starter), len(agents)) if rank.starter in agents else (0, 1)


_NODE_RANK = "\0--node[-_]rank[=\0][^\0]*"


def find_starter(ancestors: Sequence[Ancestor], daemons: Iterable[str]) -> int | None:
    """Return the pid of the nearest ancestor that is one of the daemons, or of the parent; None if hidden."""
    starter = find_daemon(ancestors, daemons) or next(iter(ancestors), None)
    return starter.pid if starter else None


def read_launcher_cpus(starter: int | None, root: Root = _SYSTEM) -> CpuSet | None:
    """Return the CPUs of the process that started a rank, within the cpuset of the rank; None if hidden."""
    if starter is None:
        return None
    try:
        cpus = CpuSet.from_list(status_value(_read_status(root, starter), "Cpus_allowed_list") or "")
    except ValueError:
        return None
    limit = read_limits(root).cpuset
    return (cpus if limit is None else cpus & limit) or None


def _read_status(root: Root, pid: int | str) -> str:
    return root.read(f"proc/{pid}/status") or ""
