"""A plan for taskset: for each rank a command line to put before its command."""

from ompbind.planning.plan import Plan
from ompbind.report.export.ranks import check_memory, confined_ranks


def render_taskset(plan: Plan) -> str:
    """Render for each rank a line to put before its command: `taskset -c 0-3,8`."""
    check_memory(plan, "taskset")
    return "\n".join(f"taskset -c {placement.cpuset}" for placement in confined_ranks(plan))
