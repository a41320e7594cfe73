"""A plan for numactl: for each rank a command line to put before its command."""

from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode
from ompbind.report.export.ranks import confined_ranks, memory_nodes


def render_numactl(plan: Plan) -> str:
    """Render for each rank a line to put before its command: `numactl --physcpubind=0-3 --membind=0`."""
    return "\n".join(
        " ".join([f"numactl --physcpubind={placement.cpuset}", *_numactl_memory(plan, placement)])
        for placement in confined_ranks(plan)
    )


def _numactl_memory(plan: Plan, placement: Placement) -> list[str]:
    """Return the memory option of a rank; --preferred-many (several nodes) needs numactl 2.0.15."""
    options = {MemoryMode.PREFERRED: "preferred", MemoryMode.INTERLEAVE: "interleave"}
    option = options.get(plan.request.memory, "membind")
    nodes = memory_nodes(plan, placement)
    several = plan.request.memory is MemoryMode.PREFERRED and len(nodes) > 1
    return [f"--{option}{'-many' if several else ''}={nodes}"] if nodes else []
