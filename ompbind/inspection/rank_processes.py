"""Crews: processes that are looked at together, which are those of one rank, or one process of no rank.

A process belongs to the rank whose number it has in its environment, or, where it shows none, to that of its
parent. The processes of ompbind itself, a run's front and its keeper, belong to none.
"""

from collections.abc import Iterator, Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.inspection.diagnosis import explain_narrowing, guess_expected
from ompbind.inspection.expectation import Expected, expect_variables
from ompbind.inspection.judge import judge
from ompbind.inspection.verdict import ThreadIssue, Verdict
from ompbind.openmp.binding import Bind
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.rank_variables import OMPBIND_RUN_ID, SUPERVISOR_NAME, find_rank
from ompbind.procfs.numa_maps import MemorySight
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.record import Record
from ompbind.severity import Severity, worst
from ompbind.text import tidy


class RankProcesses(Record):
    """The processes of one rank, first its own and then what it started, or one process of no rank.

    `rank` and `run_id` are None where the processes are of none; `expected` is None where no plan is known.
    `memory` has what is known of the memory of some processes, by their numbers.
    """

    run_id: str | None
    rank: int | None
    processes: tuple[ProcessState, ...]
    expected: Expected | None
    verdict: Verdict
    memory: tuple[tuple[int, MemorySight], ...] = ()

    @property
    def first(self) -> ProcessState:
        """The process that the others descend from."""
        return self.processes[0]

    @property
    def cpus(self) -> CpuSet:
        """All CPUs that any of its threads may run on."""
        return union(thread.cpus for process in self.processes for thread in process.threads)


class Inspection(Record):
    """All crews that were looked at, and what is to be said of several of them together."""

    crews: tuple[RankProcesses, ...]
    together: tuple[ThreadIssue, ...] = ()

    @property
    def severity(self) -> Severity:
        """The worst level of all."""
        return worst(
            [*(one.verdict.severity for one in self.crews), *(one.severity for one in self.together)]
        )


class Seen(Record):
    """What there is to make crews of: processes by their numbers, live runs, and the masks of parents."""

    processes: Mapping[int, ProcessState]
    runs: tuple[LiveRun, ...] = ()
    around: Mapping[int, CpuSet] = {}


_Home = tuple[str | None, int | None, int]
"""The run and the rank of a process, and the keeper of the run, since two runs may have one name; 0 for none.

Where the rank is not known, it is the first process of the rank instead.
"""


def make_inspection(seen: Seen) -> Inspection:
    """Make and judge the crews of all processes that were seen, ranks first and in their order."""
    crews: dict[_Home, list[ProcessState]] = {}
    supervisors = [one for one in seen.processes.values() if one.name == SUPERVISOR_NAME]
    own = {
        pid for one in supervisors for pid in (one.pid, one.parent)
    }  # and the fronts that these descend from
    others = [process for pid, process in seen.processes.items() if pid not in own]
    for process in sorted(others, key=lambda one: (sum(1 for _ in _ancestors(one, seen)), one.pid)):
        crews.setdefault(_find_home(process, seen), []).append(process)
    made = sorted((_make_crew(home, tuple(kin), seen) for home, kin in crews.items()), key=_in_order)
    return Inspection(crews=tuple(made), together=tuple(_judge_together(made, seen)))


def _in_order(one: RankProcesses) -> tuple[bool, str, bool, int, int]:
    return one.run_id is None, one.run_id or "", one.rank is None, one.rank or 0, one.first.pid


def _ancestors(process: ProcessState, seen: Seen) -> Iterator[ProcessState]:
    """Yield the parent of a process, its parent and so on, as far as they were seen, each once."""
    visited = {process.pid}
    while (parent := seen.processes.get(process.parent)) and parent.pid not in visited:
        visited.add(parent.pid)
        yield (process := parent)


def _find_home(process: ProcessState, seen: Seen) -> _Home:
    """Return the crew of a process: its own words, or its parent's where it has none."""
    first = process
    for one in (process, *_ancestors(process, seen)):
        if one.name == SUPERVISOR_NAME:
            run = next((run for run in seen.runs if run.pid == one.parent), None)
            return (run.run_id if run else None), None, first.pid
        rank = find_rank(one.env)
        if OMPBIND_RUN_ID in one.env and rank is not None:
            supervisors = (
                supervisor.pid for supervisor in _ancestors(one, seen) if supervisor.name == SUPERVISOR_NAME
            )
            return one.env[OMPBIND_RUN_ID], rank, next(supervisors, 0)
        first = one
    return None, None, process.pid


def _make_crew(home: _Home, kin: tuple[ProcessState, ...], seen: Seen) -> RankProcesses:
    run_id, rank, _ = home
    told = expect_variables(kin[0].env)
    expected = _as_planned(told, seen.runs) if told else _expect_run(run_id, kin, seen)
    plan = expected or guess_expected(kin, seen.around.get(kin[0].pid, EMPTY))
    if expected and rank is None:
        rank = expected.rank
    return RankProcesses(run_id=run_id, rank=rank, processes=kin, expected=expected, verdict=judge(kin, plan))


def _as_planned(told: Expected, runs: Sequence[LiveRun]) -> Expected:
    """Put the binding mode of a rank's run in place of what the variables of its process make of it.

    A command may have changed these before it began, as `env` does; a single CPU looks alike in all modes.
    """
    own = ((run.bind, rank) for run in runs if run.run_id == tidy(told.run_id) for rank in run.ranks)
    bind = next((bind for bind, rank in own if rank == (told.rank, told.cpus)), told.bind)
    if bind in (Bind.RANK, Bind.NONE):
        return told.replace(bind=Bind(bind), places=(told.cpus,))
    if bind == Bind.THREAD and bind != told.bind and len(told.cpus) > 1:
        return told.replace(bind=Bind.THREAD, places=(told.cpus, *(CpuSet((cpu,)) for cpu in told.cpus)))
    return told.replace(bind=Bind(bind)) if len(told.cpus) == 1 and bind in set(Bind) else told


def _expect_run(run_id: str | None, kin: tuple[ProcessState, ...], seen: Seen) -> Expected | None:
    """Return what a live run tells of the rank whose CPUs these processes have; None unless one fits.

    Of a rank whose environment may not be read this is all that is known: its CPUs and the mode.
    """
    told = [(run.bind, *rank) for run in seen.runs if run.run_id == run_id for rank in run.ranks]
    whole = union(thread.cpus for process in kin for thread in process.threads)
    fitting = [(bind, rank, cpus) for bind, rank, cpus in told if whole <= cpus]
    if len(fitting) != 1:
        return None
    bind, rank, cpus = fitting[0]
    guess = guess_expected(kin).replace(rank=rank, cpus=cpus, run_id=run_id or "")
    return _in_mode(guess, bind, kin[0].main)


def _in_mode(guess: Expected, bind: str, main: ThreadState | None) -> Expected:
    """Put the mode of a run in place of a guess, and places that its threads have in that mode.

    Whole cores are not known: these are the masks that were seen. With "exact" the initial thread's is first.
    """
    singles = [CpuSet((cpu,)) for cpu in guess.cpus]
    if main and main.cpus in singles:
        singles.sort(key=lambda place: place != main.cpus)
    places = {
        Bind.RANK: (guess.cpus,),
        Bind.NONE: (guess.cpus,),
        Bind.THREAD: (guess.cpus, *singles),
        Bind.CORE: guess.places,
        Bind.EXACT: tuple(singles),
    }
    return guess.replace(bind=Bind(bind), places=places[Bind(bind)]) if bind in set(Bind) else guess


def _judge_together(crews: Sequence[RankProcesses], seen: Seen) -> Iterator[ThreadIssue]:
    """Find ranks that may run where only another one should, and processes that share a single CPU."""
    escaped = [one for one in crews if one.expected and one.verdict.outside]
    others = [one for one in crews if one.expected and not one.verdict.outside]
    for place, one in enumerate(escaped):
        for other in (*others, *escaped[place + 1 :]):
            yield from _tell_both(one, other)
    alone: dict[CpuSet, list[RankProcesses]] = {}
    for one in crews:
        cpus = one.cpus
        alike = one.expected is None and not one.first.kernel
        if alike and len(cpus) == 1 and cpus < seen.around.get(one.first.pid, EMPTY):
            alone.setdefault(cpus, []).append(one)
    yield from (_tell_alone(cpus, group) for cpus, group in alone.items() if len(group) > 1)


def _tell_both(one: RankProcesses, other: RankProcesses) -> Iterator[ThreadIssue]:
    """Tell on which CPUs two ranks of one run may both run, against the plan."""
    if not one.expected or not other.expected or one.run_id != other.run_id:
        return
    both = (one.cpus & other.cpus) - (one.expected.cpus & other.expected.cpus)
    if both:
        ranks = " and ".join(map(str, sorted((one.rank or 0, other.rank or 0))))
        text = f"ranks {ranks} may both run on {named('CPU', both)}, against the plan"
        yield ThreadIssue(code="shared", severity=Severity.ERROR, threads=one.verdict.threads, text=text)


def _tell_alone(cpus: CpuSet, crews: Sequence[RankProcesses]) -> ThreadIssue:
    """Say which processes share a single CPU although more are around."""
    shown = ", ".join(f"{one.first.name} ({one.first.pid})" for one in crews[:4])
    if len(crews) > 4:
        shown += f" and {len(crews) - 4} more"
    causes = (explain_narrowing(one.first, [cpus]) for one in crews)
    cause = next(filter(None, causes), "")
    text = f"{len(crews)} processes may run on {named('CPU', cpus)} alone: {shown}"
    if cause:
        text += f"; {cause}; give each one CPUs of its own"
    severity, threads = Severity.ERROR if cause else Severity.NOTE, sum(one.verdict.threads for one in crews)
    return ThreadIssue(code="shared", severity=severity, threads=threads, text=text)
