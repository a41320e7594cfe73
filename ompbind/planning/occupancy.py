"""Live runs: which CPUs each run has claimed, and which CPUs are left for the run that is planned.

A run *claims* the CPUs of its ranks and the CPUs that it reserves. A rank of a launcher's job claims the CPUs
of all ranks of the job on its machine: ranks that start later must still find their CPUs free.
"""

from collections.abc import Iterator

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.machine.model import Level, Machine, find_overlapping
from ompbind.record import Record

NAMED_RUNS = 3
"""How many runs a message names; it only counts the others."""


class LiveRun(Record):
    """One live run, or one live rank of a launcher's job; `started` is in seconds since the epoch.

    `ranks` are (rank, its CPUs). `claimed` are all CPUs that other runs should not use. `avoided` are the
    CPUs that it did not use because other runs occupied their cores when it was planned. `parent_run_id` is
    the run in which it was started, "" if none. `pid_space` is the inode number of the PID namespace of
    `pid`, 0 if unknown. `bind` is the binding mode of its ranks, "" if unknown. `restarts` is how often ranks
    were restarted so far. `configuration` is the digest of the configuration files that it has read, "" if
    none. `division` is equal for ranks of a job that have divided the CPUs of this machine in the same way,
    "" if the rank has a plan of its own. `wanted` are the CPUs of the cores that it may get, if it waits
    until CPUs are free; it then claims none.
    """

    run_id: str
    pid: int
    uid: int
    started: int
    ranks: tuple[tuple[int, CpuSet], ...]
    claimed: CpuSet
    avoided: CpuSet = EMPTY
    parent_run_id: str = ""
    pid_space: int = 0
    bind: str = ""
    restarts: int = 0
    configuration: str = ""
    division: str = ""
    wanted: CpuSet = EMPTY


class RunIdentity(Record):
    """The identity of the run that is about to start.

    `parent_run_id` is the run in which it starts, "" if none.
    Under a launcher it is one rank of a job: `rank` is its number, `placement_index` the index of its
    placement in the plan for all ranks of this machine. Otherwise `placement_index` is None: the run has all
    placements.
    """

    run_id: str
    pid: int
    uid: int
    started: int
    parent_run_id: str = ""
    placement_index: int | None = None
    rank: int = 0
    pid_space: int = 0


class AvailableCpus(Record):
    """The CPUs of a machine that a plan may use; `runs` are the other live runs there.

    `avoided` are the CPUs of the cores that these runs occupy, if the request avoids them (--avoid).
    """

    machine: Machine
    runs: tuple[LiveRun, ...] = ()
    avoided: CpuSet = EMPTY

    @property
    def free(self) -> CpuSet:
        """The allowed CPUs that are not avoided."""
        return self.machine.allowed - self.avoided

    @property
    def default_cpus(self) -> CpuSet:
        """The CPUs that are used if no mask names any: free and not excluded by default."""
        return self.free - self.machine.excluded_by_default


def occupied_cores(machine: Machine, run: LiveRun) -> CpuSet:
    """Return all CPUs of the cores that a run occupies, even if it claims only some of a core's CPUs."""
    return whole_cores(machine, run.claimed)


def whole_cores(machine: Machine, cpus: CpuSet) -> CpuSet:
    """Return all CPUs of the cores that have some of these CPUs."""
    return union(core.cpus for core in find_overlapping(machine.at(Level.CORE), cpus))


def sort_by_core(machine: Machine, cpus: CpuSet) -> Iterator[int]:
    """Yield `cpus` core by core in the machine's order, so that SMT siblings are adjacent."""
    for core in machine.at(Level.CORE):
        if not core.cpus.isdisjoint(cpus):  # cheaper than the intersection, and most cores are disjoint
            yield from core.cpus & cpus
