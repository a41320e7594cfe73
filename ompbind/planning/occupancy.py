"""Live runs: which CPUs each of them holds, and what that leaves of a machine to the run that is planned.

A run *holds* the CPUs of its ranks and those that it reserves. A rank of a launcher's job holds what was
planned for all ranks of the job on its machine: ranks that start later must still find their CPUs free.
"""

from collections.abc import Iterable, Iterator, Sequence

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.machine.model import Level, Machine, touched
from ompbind.record import Record
from ompbind.text import tidy

NAMED_RUNS = 3
"""Runs that a message names; more are counted."""

WAYS_OUT = "wait until others end ('ompbind ps' lists live runs), or use their CPUs all the same with --share"


class LiveRun(Record):
    """One live run, or one live rank of an engine's job; `started` is in seconds of the epoch.

    `ranks` are (rank, its CPUs), `held` all CPUs that are not for others. `avoided` are those that it left
    to others when it was planned, `inside` is the name of the run that it was started in, "" if in none.
    `pid_space` is the kernel's number of the space (container) in which `pid` means something, 0 if unknown.
    `bind` is the binding mode of its ranks, "" where it is not told.
    """

    run_id: str
    pid: int
    uid: int
    started: int
    ranks: tuple[tuple[int, CpuSet], ...]
    held: CpuSet
    avoided: CpuSet = EMPTY
    inside: str = ""
    pid_space: int = 0
    bind: str = ""


class Claimant(Record):
    """Who is about to run; `inside` is the name of the run around it, "" where there is none.

    In an engine's job this is one rank: `rank` is its number, `slot` its place in the plan for all ranks
    of this machine. Otherwise `slot` is None: all ranks of the plan are its own.
    """

    run_id: str
    pid: int
    uid: int
    started: int
    inside: str = ""
    slot: int | None = None
    rank: int = 0
    pid_space: int = 0


class AvailableCpus(Record):
    """The CPUs of a machine that a plan may use; `runs` are the other live runs there.

    `avoided` are the CPUs of their cores where the request leaves these to them (--avoid).
    """

    machine: Machine
    runs: tuple[LiveRun, ...] = ()
    avoided: CpuSet = EMPTY

    @property
    def free(self) -> CpuSet:
        """The CPUs that may be used and are not left to other runs."""
        return self.machine.allowed - self.avoided

    @property
    def ordinary(self) -> CpuSet:
        """The CPUs that are used without being named: what is free and not set apart."""
        return self.free - self.machine.excluded_by_default


def in_use(available: AvailableCpus, cpus: CpuSet) -> str:
    """Say which runs use CPUs, or other hardware threads of their cores."""
    runs = [run for run in available.runs if not reach(available.machine, run).isdisjoint(cpus)]
    where = "in use" if not union(run.held for run in runs).isdisjoint(cpus) else "on cores in use"
    return f"{named('CPU', cpus)} {'is' if len(cpus) == 1 else 'are'} {where} by {_names(runs)}"


def _names(runs: Sequence[LiveRun]) -> str:
    """Name runs, each once though it may be several ranks of an engine; one without a name has ended."""
    told = list(dict.fromkeys(run.run_id for run in runs if run.run_id))
    if not told:
        return "a run that has ended since the first rank of this job was planned"
    pids = {run.run_id: run.pid for run in reversed(runs)}
    first = [f"run {name} (pid {pids[name]})" for name in told[:NAMED_RUNS]]
    more = [f"{len(told) - NAMED_RUNS} more"] if len(told) > NAMED_RUNS else []
    *some, last = first + more
    return f"{', '.join(some)} and {last}" if some else last


def reach(machine: Machine, run: LiveRun) -> CpuSet:
    """Return the CPUs of all cores that a run has CPUs of."""
    return union(core.cpus for core in touched(machine.at(Level.CORE), run.held))


def find_others(runs: Iterable[LiveRun], me: Claimant) -> tuple[LiveRun, ...]:
    """Return the runs that are not this one's own: neither around it nor of its job."""
    runs = tuple(runs)
    around = set(_around(runs, me))
    mine = (run for run in runs if (run.run_id in around and run.uid == me.uid) or _is_related(run, me))
    known = set(map(id, mine))
    return tuple(run for run in runs if id(run) not in known)


def find_related_runs(runs: Iterable[LiveRun], me: Claimant) -> tuple[LiveRun, ...]:
    """Return the other ranks of the same engine's job."""
    return tuple(run for run in runs if _is_related(run, me))


def _is_related(run: LiveRun, me: Claimant) -> bool:
    return me.slot is not None and (run.run_id, run.uid) == (tidy(me.run_id), me.uid)


def _around(runs: tuple[LiveRun, ...], me: Claimant) -> Iterator[str]:
    """Yield the name of the run around, of the run around that one, and so on, all of one user."""
    seen, new = set[str](), {tidy(me.inside)} - {""}
    while new:
        yield from new
        seen |= new
        new = {run.inside for run in runs if run.run_id in new and run.uid == me.uid} - seen - {""}
