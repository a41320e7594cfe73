"""The effect of other live runs on a plan: which CPUs are avoided, refused or only reported.

Two runs contend wherever they occupy the same core: its hardware threads share its execution units.
"""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import EMPTY, CpuSet, union
from ompbind.errors import PlanError
from ompbind.machine.model import Machine
from ompbind.planning.occupancy import AvailableCpus, LiveRun, occupied_cores
from ompbind.planning.occupancy_text import OCCUPIED_HINT, render_occupancy
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import Request, Sharing


def make_available(machine: Machine, request: Request, runs: Sequence[LiveRun]) -> AvailableCpus:
    """Return the CPUs that a plan may use: with --avoid, no core that another run occupies.

    Raises PlanError if that leaves no core.
    """
    available = AvailableCpus(machine=machine, runs=tuple(runs))
    if request.sharing is not Sharing.AVOID:
        return available
    available = available.replace(avoided=union(occupied_cores(machine, run) for run in runs))
    if available.free:
        return available
    raise PlanError(f"no core is free: {render_occupancy(available, machine.allowed)}", hint=OCCUPIED_HINT)


def check_exclusive(plan: Plan) -> None:
    """With --exclusive, raise PlanError if another run uses a core of the plan."""
    shared = _shared_cpus(plan)
    if shared and plan.request.sharing is Sharing.EXCLUSIVE:
        raise PlanError(
            f"not exclusive: {render_occupancy(_available_to(plan), shared)}",
            hint="wait for these runs ('run --wait'), name other CPUs (--mask), or use free cores (--avoid)",
        )


def explain_other_runs(plan: Plan) -> Iterator[Note]:
    """Explain which CPUs of the plan other runs use too, or which CPUs it avoids because of them."""
    sharing, shared, avoided = plan.request.sharing, _shared_cpus(plan), plan.avoided & plan.machine.allowed
    unknown = plan.machine.source != "live" and not plan.occupied
    if unknown and sharing in (Sharing.AVOID, Sharing.EXCLUSIVE):
        text = f"--{sharing} has no effect: live runs are known only on the live machine"
        yield Note(code="avoided", text=text)
        return
    if not (shared and sharing is Sharing.WARN) and not avoided:
        return
    if shared and sharing is Sharing.WARN:
        users = render_occupancy(_available_to(plan), shared)
        text = f"{users}: threads will compete for CPUs (--avoid uses other CPUs, --share hides this warning)"
        yield Note(code="overlaps-run", text=text, warning=True)
    else:
        yield Note(code="avoided", text=f"not used: {render_occupancy(_available_to(plan), avoided)}")


def _available_to(plan: Plan) -> AvailableCpus:
    return AvailableCpus(machine=plan.machine, runs=plan.occupied, avoided=plan.avoided)


def _shared_cpus(plan: Plan) -> CpuSet:
    """Return the CPUs that a plan uses or reserves and that are on cores of other runs."""
    occupied = union(occupied_cores(plan.machine, run) for run in plan.occupied)
    return occupied & (plan.used | plan.reserved) if occupied else EMPTY
