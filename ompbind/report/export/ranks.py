"""What several formats need of a plan's ranks; each refuses what other tools cannot be given."""

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode


def confined_ranks(plan: Plan) -> tuple[Placement, ...]:
    """Return the placements of a plan, if its machine can hold processes to them."""
    if not plan.machine.bindable:
        raise RequestError(
            "this system cannot confine a process to CPUs, so there is none to tell others",
            hint="--format sh and --format env have the thread counts of a rank",
        )
    return plan.placements


def memory_nodes(plan: Plan, one: Placement) -> CpuSet:
    """Return the nodes of a rank's memory, none where they are unknown, or no policy can be had for them."""
    if plan.request.memory is MemoryMode.LOCAL:
        return CpuSet(one.memory_nodes)
    return CpuSet(one.memory.nodes) if one.memory else CpuSet()


def check_memory(plan: Plan, who: str, *known: MemoryMode) -> None:
    """Refuse what a format cannot say of memory, rather than leave it out."""
    if plan.request.memory not in (MemoryMode.LOCAL, *known):
        raise RequestError(
            f"{who} cannot be told --memory {plan.request.memory}",
            hint="leave it out, or let every rank take it itself: ompbind exec"
            f" --memory {plan.request.memory} -- COMMAND",
        )
