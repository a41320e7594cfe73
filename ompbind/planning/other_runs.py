"""Other live runs: which CPUs they occupy, which of these are left, and which runs contend with a new run.

A run *claims* the CPUs of its ranks and the CPUs that it reserves. A rank of a launcher's job claims the CPUs
of all ranks of the job on its machine: ranks that start later must still find their CPUs free. Two runs
contend wherever they occupy the same core: its hardware threads share its execution units.
"""

from collections.abc import Iterable, Sequence

from ompbind.cpuset import EMPTY, CpuSet, join_words, named, union
from ompbind.errors import PlanError
from ompbind.machine.model import Machine
from ompbind.planning.request import Hold, Request, Sharing
from ompbind.record import Record

NAMED_RUNS = 3  # how many runs a message names; it only counts the others


class LiveRun(Record):
    """One live run, or one live rank of a launcher's job; `started` is in seconds since the epoch.

    `ranks` are (rank, its CPUs). `claimed` are all CPUs that other runs should not use, `avoided` the CPUs
    that it did not use because other runs occupied their cores when it was planned. `parent_run_id` is the
    run in which it was started. `pid_space` is the inode number of the PID namespace of `pid`, 0 if unknown.
    `bind` is the binding mode of its ranks, `restarts` how often ranks were restarted so far, and
    `configuration` the digest of its configuration files. `division` is equal for ranks of a job that have
    divided the CPUs of this machine in the same way, "" if the rank has a plan of its own. `groups` are the
    names of its groups, each with its number of ranks: "server 1, load 4". `wanted` are the CPUs of the cores
    that it may get, if it waits until CPUs are free; it then claims none. A session of bench (`is_session`)
    claims the CPUs of all its candidates and lists no ranks. `grace_s` are the seconds of its --grace, and
    `hold` is its --hold.

    A run that is about to start claims nothing yet. Under a launcher it is one rank of a job: `rank` is its
    number, `placement_index` the index of its placement in the plan for all ranks of this machine. Otherwise
    `placement_index` is None: the run has all placements.
    """

    run_id: str
    pid: int
    uid: int
    started: int
    claimed: CpuSet
    ranks: tuple[tuple[int, CpuSet], ...] = ()
    avoided: CpuSet = EMPTY
    parent_run_id: str = ""
    pid_space: int = 0
    bind: str = ""
    restarts: int = 0
    configuration: str = ""
    division: str = ""
    groups: str = ""
    wanted: CpuSet = EMPTY
    is_session: bool = False
    grace_s: int = 10
    hold: Hold | None = None
    placement_index: int | None = None
    rank: int = 0

    def is_same_job(self, run: "LiveRun") -> bool:
        """Return whether a live run is a rank of the launcher's job of this run, which is about to start."""
        return self.placement_index is not None and (run.run_id, run.uid) == (self.run_id, self.uid)


def find_avoided(machine: Machine, request: Request, runs: Sequence[LiveRun]) -> CpuSet:
    """Return the CPUs that a plan avoids: with --avoid all CPUs of cores that other runs occupy.

    Raises PlanError if that leaves no core.
    """
    if request.sharing is not Sharing.AVOID:
        return EMPTY
    avoided = union(machine.table.whole(run.claimed) for run in runs)
    if machine.allowed - avoided or not runs:
        return avoided
    raise PlanError(
        f"no core is free: {render_occupancy(machine, runs, machine.allowed)}", hint=OCCUPIED_HINT
    )


def find_shared_cpus(machine: Machine, runs: Iterable[LiveRun], cpus: CpuSet) -> CpuSet:
    """Return the CPUs, out of some, that are on cores of other runs."""
    return union(machine.table.whole(run.claimed) for run in runs) & cpus


OCCUPIED_HINT = "wait for other runs ('run --wait'; 'ompbind ps' lists them), or use their CPUs with --share"


def render_occupancy(machine: Machine, runs: Iterable[LiveRun], cpus: CpuSet) -> str:
    """Return the text that says which runs use some CPUs, or other hardware threads of their cores.

    Ranks of one job are named once, and a run without a name has exited.
    """
    runs = [run for run in runs if not machine.table.whole(run.claimed).isdisjoint(cpus)]
    where = "in use" if not union(run.claimed for run in runs).isdisjoint(cpus) else "on cores in use"
    pids = {run.run_id: run.pid for run in reversed(runs)}
    names = list(dict.fromkeys(run.run_id for run in runs if run.run_id))
    users = [f"run {name} (pid {pids[name]})" for name in names[:NAMED_RUNS]]
    users += [f"{len(names) - NAMED_RUNS} more"] if len(names) > NAMED_RUNS else []
    by = join_words(users or ["a run that has exited since the first rank of this job was planned"])
    return f"{named('CPU', cpus)} {'is' if len(cpus) == 1 else 'are'} {where} by {by}"


def find_other_runs(runs: Iterable[LiveRun], own: LiveRun) -> tuple[LiveRun, ...]:
    """Return the runs that could contend with a new run: all but the runs it starts in and its own job."""
    runs = tuple(runs)
    ancestors, new = set[str](), {own.parent_run_id}
    while new := new - ancestors - {""}:  # the parent run, its parent run, and so on
        ancestors |= new
        new = {run.parent_run_id for run in runs if run.run_id in new and run.uid == own.uid}
    around = {id(run) for run in runs if run.run_id in ancestors and run.uid == own.uid}
    return tuple(run for run in runs if not (id(run) in around or own.is_same_job(run)))
