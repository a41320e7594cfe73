"""What other live runs mean for a plan: what is left to them, what is refused, what is told.

Two runs are in each other's way on a whole core: its hardware threads share what makes it fast.
"""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import CpuSet, union
from ompbind.errors import PlanError
from ompbind.machine.model import Machine
from ompbind.planning.occupancy import WAYS_OUT, AvailableCpus, LiveRun, in_use, reach
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import Request, Sharing


def make_available(machine: Machine, request: Request, runs: Sequence[LiveRun]) -> AvailableCpus:
    """Leave the cores of other runs to them, with --avoid; raises PlanError when no core is free."""
    available = AvailableCpus(machine=machine, runs=tuple(runs))
    if request.sharing is not Sharing.AVOID:
        return available
    available = available.replace(avoided=union(reach(machine, run) for run in runs))
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


def explain_neighbours(plan: Plan) -> Iterator[Note]:
    """Tell of CPUs that other runs use as well, and of those that are left to them."""
    sharing, shared, avoided = plan.request.sharing, _shared(plan), plan.avoided & plan.machine.allowed
    unknown = plan.machine.source != "live" and not plan.occupied
    if unknown and sharing in (Sharing.AVOID, Sharing.EXCLUSIVE):
        text = f"--{sharing} changes nothing: live runs are known on the live machine only"
        yield Note(code="avoided", text=text)
    elif shared and sharing is Sharing.WARN:
        text = f"{in_use(_among(plan), shared)} as well (--avoid plans on what is free, --share is silent)"
        yield Note(code="overlaps-run", text=text, warning=True)
    elif avoided:
        yield Note(code="avoided", text=f"left to others: {in_use(_among(plan), avoided)}")


def _among(plan: Plan) -> AvailableCpus:
    return AvailableCpus(machine=plan.machine, runs=plan.occupied, avoided=plan.avoided)


def _shared(plan: Plan) -> CpuSet:
    """Return the CPUs of a plan, reserved ones too, that are on cores of other runs."""
    return (plan.used | plan.reserved) & union(reach(plan.machine, run) for run in plan.occupied)
