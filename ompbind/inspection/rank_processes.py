"""Group processes by rank, and compare each group with its plan.

A *group* is all processes of one rank, or one process without a rank. To find the group of a process, walk
from it up its parents to the first process that has OMPBIND_RUN_ID and OMPBIND_RANK in its environment:

    ompbind                      foreground process of run "job": in no group
     `- ompbind supervisor       in no group
         |- python  RANK=0       group of rank 0 of "job"
         |   `- loader           no variables (env -i): group of its parent
         `- python  RANK=1       group of rank 1 of "job"
             `- ...  RUN_ID=b    a nested run: groups of its own

If the walk reaches a supervisor first, the environment is not readable or was cleared. Then the processes
below that child of the supervisor are one group, and its rank is found by its CPUs. `ompbind exec` has no
supervisor: the process with the PID of the live run is the rank.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from ompbind.commands.rank_variables import OMPBIND_RUN_ID, SUPERVISOR_NAME, find_attempt, find_rank
from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.inspection.diagnosis import ExpectedBinding, expect_variables, guess_expected, list_ancestors
from ompbind.inspection.judge import CpusetChange, judge
from ompbind.inspection.verdict import State, ThreadIssue, Verdict
from ompbind.machine.read.linux_cgroup import CgroupLimits
from ompbind.openmp.binding import Bind
from ompbind.openmp.runtimes import KMP_AFFINITY, PLACE_VARIABLES
from ompbind.planning.other_runs import LiveRun
from ompbind.procfs.parsers import MemoryMap
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.record import Record
from ompbind.text import Severity, clean_name, worst


class MaskOrigin(Record):
    """The process whose mask became smaller than that of its parent, and the CPUs that could be used.

    `allowed` are the CPUs of the parent that the cpuset allows; empty if they are unknown.
    """

    process: ProcessState
    allowed: CpuSet = EMPTY


class RankProcesses(Record):
    """A group: the processes of one rank, parents before children, or one process without a rank.

    `expected` is None without a known plan. `attempt` counts the starts of the rank, from 1. `memory` has the
    memory map of processes, by PID, as far as it was read. `origin` and `limits` are of the first
    process.
    """

    run_id: str | None
    rank: int | None
    processes: tuple[ProcessState, ...]
    expected: ExpectedBinding | None
    verdict: Verdict
    memory: tuple[tuple[int, MemoryMap], ...] = ()
    attempt: int = 1
    origin: MaskOrigin | None = None
    limits: CgroupLimits = CgroupLimits()

    @property
    def first(self) -> ProcessState:
        """The process from which the others descend."""
        return self.processes[0]

    @property
    def cpus(self) -> CpuSet:
        """The union of the affinity masks of all threads."""
        return union(thread.cpus for process in self.processes for thread in process.threads)


class Inspection(Record):
    """All groups with their verdicts, and the issues that concern several groups.

    `unseen` are processes and runs that could not be read, each with the reason.
    """

    groups: tuple[RankProcesses, ...]
    shared_issues: tuple[ThreadIssue, ...] = ()
    unseen: tuple[tuple[str, str], ...] = ()

    @property
    def severity(self) -> Severity:
        """The worst severity of all issues."""
        verdicts = [group.verdict.severity for group in self.groups]
        return worst([*verdicts, *(issue.severity for issue in self.shared_issues)])

    @property
    def state(self) -> State:
        """What is known of all that was to be inspected."""
        if self.severity is Severity.ERROR:
            return State.ERROR
        return State.OK if self.groups and not self.unseen else State.NOT_SEEN


class ObservedProcesses(Record):
    """What was read: live runs, and by PID processes, where their masks come from, their cgroup limits."""

    processes: Mapping[int, ProcessState]
    runs: tuple[LiveRun, ...] = ()
    origins: Mapping[int, MaskOrigin] = {}
    limits: Mapping[int, CgroupLimits] = {}


_GroupKey = tuple[str | None, int | None, int]
"""The run ID and the rank of a process, and a PID, since run IDs may repeat: of the run's supervisor (0 if
there is none), or if the rank is unknown, of the first process of the group."""


def make_inspection(observed: ObservedProcesses) -> Inspection:
    """Group all observed processes and compare each group with its plan; ranks come first, in order."""
    members: dict[_GroupKey, list[ProcessState]] = {}
    supervisors = [process for process in observed.processes.values() if process.name == SUPERVISOR_NAME]
    own_pids = {pid for process in supervisors for pid in (process.pid, process.parent)}
    others = [process for pid, process in observed.processes.items() if pid not in own_pids]
    others.sort(key=lambda process: (len([*list_ancestors(process, observed.processes)]), process.pid))
    for process in others:
        members.setdefault(_find_group_key(process, observed), []).append(process)
    groups = [_make_group(key, tuple(processes), observed) for key, processes in members.items()]
    groups.sort(key=lambda group: (group.rank is None, group.rank or 0, group.first.pid))
    groups.sort(key=lambda group: (group.run_id is None, group.run_id or ""))
    return Inspection(groups=tuple(groups), shared_issues=tuple(_find_shared_issues(groups)))


def _find_group_key(process: ProcessState, observed: ObservedProcesses) -> _GroupKey:
    """Return the group of a process, from its own environment or that of its nearest ancestor with a rank."""
    below = process
    for candidate in (process, *list_ancestors(process, observed.processes)):
        if candidate.name == SUPERVISOR_NAME:
            run = next((run for run in observed.runs if run.pid == candidate.parent), None)
            return (run.run_id if run else None), None, below.pid
        rank = find_rank(candidate.env)
        if OMPBIND_RUN_ID in candidate.env and rank is not None:
            ancestors = list_ancestors(candidate, observed.processes)
            supervisor = next((parent.pid for parent in ancestors if parent.name == SUPERVISOR_NAME), 0)
            return candidate.env[OMPBIND_RUN_ID], rank, supervisor
        run = next((run for run in observed.runs if run.pid == candidate.pid and len(run.ranks) == 1), None)
        if run and not candidate.is_environment_known:
            return run.run_id, run.ranks[0][0], 0
        below = candidate
    return None, None, process.pid


def _make_group(
    key: _GroupKey, processes: tuple[ProcessState, ...], observed: ObservedProcesses
) -> RankProcesses:
    run_id, rank, _ = key
    first = processes[0]
    by_env = expect_variables(first.env)
    by_run = None if by_env else _expect_by_cpus(run_id, rank, processes, observed)
    expected = _use_bind_of_run(by_env, first, observed.runs) if by_env else by_run
    origin, limits = observed.origins.get(first.pid), observed.limits.get(first.pid, CgroupLimits())
    if expected and expected.bind is Bind.NONE and not (origin and expected.cpus < origin.allowed):
        expected = expected.replace(is_unbound=True)
    assumed = expected or guess_expected(processes, origin.allowed if origin else EMPTY)
    return RankProcesses(
        run_id=run_id,
        rank=expected.rank if expected and rank is None else rank,
        processes=processes,
        expected=expected,
        verdict=judge(processes, assumed, CpusetChange(now=limits)),
        attempt=find_attempt(first.env),
        origin=origin,
        limits=limits,
    )


def _use_bind_of_run(
    expected: ExpectedBinding, first: ProcessState, runs: Sequence[LiveRun]
) -> ExpectedBinding:
    """Replace the binding mode that follows from variables with the mode of the live run, and add its hold.

    The command may have changed the variables before the process was executed, as `env` does. With a single
    CPU the variables are the same in all modes.
    """
    if not first.env.keys() & {*PLACE_VARIABLES, KMP_AFFINITY}:  # the command has removed them
        expected = expected.replace(variables=(("OMP_PROC_BIND", "true"),))
    own, rank = clean_name(expected.run_id), (expected.rank, expected.cpus)
    run = next((run for run in runs if run.run_id == own and rank in run.ranks), None)
    if run is None:
        return expected
    expected = expected.replace(hold=run.hold)
    return expected if run.bind == expected.bind else _set_bind(expected, run.bind, first.initial_thread)


def _expect_by_cpus(
    run_id: str | None, rank: int | None, processes: tuple[ProcessState, ...], observed: ObservedProcesses
) -> ExpectedBinding | None:
    """Return what the live run expects of a rank; if it is None, of that whose CPUs include all their masks.

    This is all that is known of ranks whose environment is not readable. None unless exactly one rank fits.
    """
    whole = union(thread.cpus for process in processes for thread in process.threads)
    ranks = [(run, *found) for run in observed.runs if run.run_id == run_id for found in run.ranks]
    fitting = [found for found in ranks if (whole <= found[2] if rank is None else found[1] == rank)]
    if len(fitting) != 1:
        return None
    run, number, cpus = fitting[0]
    guess = guess_expected(processes).replace(rank=number, cpus=cpus, run_id=run_id or "", hold=run.hold)
    return _set_bind(guess, run.bind, processes[0].initial_thread)


def _set_bind(guess: ExpectedBinding, bind: str, initial_thread: ThreadState | None) -> ExpectedBinding:
    """Replace the binding mode of a guess, and its places by the places of that mode.

    For "rank" workers have a place without service CPUs, unless the rank has no places. For "core" the places
    stay the observed masks: which CPUs are whole cores is not known here. For "exact" the place of the
    initial thread comes first.
    """
    workers = guess.cpus if guess.bind is Bind.NONE else guess.compute
    singles = [CpuSet((cpu,)) for cpu in guess.compute]
    singles.sort(key=lambda place: initial_thread is None or place != initial_thread.cpus)
    places = {
        Bind.RANK: tuple(dict.fromkeys((guess.cpus, workers))),
        Bind.NONE: (guess.cpus,),
        Bind.THREAD: (guess.cpus, *singles),
        Bind.CORE: guess.places,
        Bind.EXACT: tuple(singles),
    }
    return guess.replace(bind=Bind(bind), places=places[Bind(bind)]) if bind in set(Bind) else guess


def _find_shared_issues(groups: Sequence[RankProcesses]) -> Iterator[ThreadIssue]:
    """Find two ranks of a run that are both allowed on CPUs which the plan does not let them share."""
    planned = [(group, group.expected.cpus) for group in groups if group.expected]
    planned.sort(key=lambda pair: not pair[0].verdict.outside)  # stable
    for (group, cpus), (other, other_cpus) in combinations(planned, 2):
        both = (group.cpus & other.cpus) - (cpus & other_cpus)
        if both and group.run_id == other.run_id and group.verdict.outside:
            ranks = " and ".join(map(str, sorted((group.rank or 0, other.rank or 0))))
            text = f"ranks {ranks} are both allowed on {named('CPU', both)}, contrary to the plan"
            threads = group.verdict.threads
            yield ThreadIssue(code="shared", severity=Severity.ERROR, threads=threads, text=text)
