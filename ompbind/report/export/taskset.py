"""A plan for taskset: a line for each rank, to go before its command."""

from ompbind.planning.plan import Plan
from ompbind.report.export.ranks import check_memory, confined_ranks


def render_taskset(plan: Plan) -> str:
    """Render a line for each rank that goes before its command: `taskset -c 0-3,8`."""
    check_memory(plan, "taskset")
    return "\n".join(f"taskset -c {one.cpuset}" for one in confined_ranks(plan))
