"""What other live runs mean for a plan: what is left to them, what is refused, what is told.

Two runs are in each other's way on a whole core: its hardware threads share what makes it fast.
"""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet, named, union
from ompbind.errors import PlanError
from ompbind.machine.model import Level, Machine, touched
from ompbind.planning.occupancy import AvailableCpus, LiveRun
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import Request, Sharing

NAMED_RUNS = 3
"""Runs that a message names; more are counted."""

WAYS_OUT = "wait until others end ('ompbind ps' lists live runs), or use their CPUs all the same with --share"


def make_available(machine: Machine, request: Request, runs: Sequence[LiveRun]) -> AvailableCpus:
    """Leave the cores of other runs to them, with --avoid; raises PlanError when no core is free."""
    available = AvailableCpus(machine=machine, runs=tuple(runs))
    if request.sharing is not Sharing.AVOID:
        return available
    available = available.replace(avoided=union(_reach(machine, run) for run in runs))
    if available.free:
        return available
    raise PlanError(f"no core is free: {in_use(available, machine.allowed)}", hint=WAYS_OUT)


def check_alone(plan: Plan) -> None:
    """Refuse, with --exclusive, what other runs use as well; raises PlanError."""
    shared = _shared(plan)
    if shared and plan.request.sharing is Sharing.EXCLUSIVE:
        raise PlanError(
            f"not exclusive: {in_use(_among(plan), shared)}",
            hint="wait until others end, name other CPUs with --mask, or plan on what is free with --avoid",
        )


def explain_neighbours(plan: Plan) -> list[Note]:
    """Tell of CPUs that other runs use as well, and of those that are left to them."""
    shared, available, avoided = _shared(plan), _among(plan), plan.avoided & plan.machine.allowed
    unknown = plan.machine.source != "live" and not plan.occupied
    if unknown and plan.request.sharing in (Sharing.AVOID, Sharing.EXCLUSIVE):
        text = f"--{plan.request.sharing} changes nothing: live runs are known on the live machine only"
        return [Note(code="avoided", text=text)]
    if shared and plan.request.sharing is Sharing.WARN:
        text = f"{in_use(available, shared)} as well (--avoid plans on what is free, --share is silent)"
        return [Note(code="overlaps-run", text=text, warning=True)]
    if avoided:
        return [Note(code="avoided", text=f"left to others: {in_use(available, avoided)}")]
    return []


def in_use(available: AvailableCpus, cpus: CpuSet) -> str:
    """Say which runs use CPUs, or other hardware threads of their cores."""
    runs = [run for run in available.runs if not _reach(available.machine, run).isdisjoint(cpus)]
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


def _reach(machine: Machine, run: LiveRun) -> CpuSet:
    """Return the CPUs of all cores that a run has CPUs of."""
    return union(core.cpus for core in touched(machine.at(Level.CORE), run.held))


def _among(plan: Plan) -> AvailableCpus:
    return AvailableCpus(machine=plan.machine, runs=plan.occupied, avoided=plan.avoided)


def _shared(plan: Plan) -> CpuSet:
    """Return the CPUs of a plan, reserved ones too, that are on cores of other runs."""
    return (plan.used | plan.reserved) & union(_reach(plan.machine, run) for run in plan.occupied)
