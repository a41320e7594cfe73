"""Functions that several formats share; they raise RequestError for plans that other tools cannot follow."""

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode


def confined_ranks(plan: Plan) -> tuple[Placement, ...]:
    """Return the placements of a plan; raises RequestError if its machine cannot confine processes."""
    if not plan.machine.bindable:
        raise RequestError(
            "this system cannot confine a process to CPUs, so there are no CPUs to pass to other tools",
            hint="use --format sh or --format env for the thread count of a rank",
        )
    return plan.placements


def memory_nodes(plan: Plan, placement: Placement) -> CpuSet:
    """Return the NUMA nodes of a rank's memory; none if they are unknown or no memory policy can be set."""
    if plan.request.memory is MemoryMode.LOCAL:
        return CpuSet(placement.memory_nodes)
    return CpuSet(placement.memory.nodes) if placement.memory else CpuSet()


def check_memory(plan: Plan, tool: str, *supported: MemoryMode) -> None:
    """Raise RequestError for a --memory policy that a tool does not support; `local` needs no support."""
    if plan.request.memory not in (MemoryMode.LOCAL, *supported):
        raise RequestError(
            f"{tool} has no option for --memory {plan.request.memory}",
            hint="leave --memory out, or let every rank set it itself: ompbind exec"
            f" --memory {plan.request.memory} -- COMMAND",
        )


def check_thread_binding(plan: Plan, tool: str, hint: str) -> None:
    """Raise RequestError for --bind none, if a tool always binds OpenMP threads to the CPUs of a rank."""
    if plan.request.bind is Bind.NONE:
        raise RequestError(
            f"{tool} binds OpenMP threads to the CPUs that it is given; --bind none excludes that", hint=hint
        )


def render_compute_lists(plan: Plan) -> str:
    """Render the compute CPUs of each rank, as in '0-3|4-7'; of a rank with fewer threads, the first CPUs.

    The programs that read these lists start one OpenMP thread on each CPU.
    """
    return "|".join(str(CpuSet(placement.cpus[: placement.threads])) for placement in confined_ranks(plan))
