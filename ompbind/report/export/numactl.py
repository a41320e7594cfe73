"""A plan for numactl: a line for each rank, to go before its command."""

from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode
from ompbind.report.export.ranks import confined_ranks, memory_nodes


def render_numactl(plan: Plan) -> str:
    """Render a line for each rank that goes before its command: `numactl --physcpubind=0-3 --membind=0`."""
    return "\n".join(
        " ".join([f"numactl --physcpubind={one.cpuset}", *_numactl_memory(plan, one)])
        for one in confined_ranks(plan)
    )


def _numactl_memory(plan: Plan, one: Placement) -> list[str]:
    """Write the memory of a rank as an option of numactl; 2.0.15 is the first to prefer several nodes."""
    options = {MemoryMode.PREFERRED: "preferred", MemoryMode.INTERLEAVE: "interleave"}
    option = options.get(plan.request.memory, "membind")
    nodes = memory_nodes(plan, one)
    several = plan.request.memory is MemoryMode.PREFERRED and len(nodes) > 1
    return [f"--{option}{'-many' if several else ''}={nodes}"] if nodes else []
