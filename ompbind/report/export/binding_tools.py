"""A plan for taskset: for each rank a command line to put before its command."""

from ompbind.errors import RequestError
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode
from ompbind.report.export.ranks import check_memory, confined_ranks, memory_nodes


def render_taskset(plan: Plan) -> str:
    """Render for each rank a line to put before its command: `taskset -c 0-3,8`."""
    check_memory(plan, "taskset")
    return "\n".join(f"taskset -c {placement.cpuset}" for placement in confined_ranks(plan))


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


RANKFILE_SLOTS = 48
"""Characters of the longest list of slots: mpirun copies "localhost slot=" and the list into 64 bytes."""


def render_rankfile(plan: Plan) -> str:
    """Render a rankfile for Open MPI 4; its first line is a comment with the options of mpirun that it needs.

    Raises RequestError for lists that are too long for mpirun, and for --memory.
    """
    check_memory(plan, "a rankfile")
    ranks = confined_ranks(plan)
    options = f"-n {len(ranks)} --use-hwthread-cpus --mca rmaps_rank_file_physical 1"
    lines = [f"# mpirun {options} --rankfile THIS_FILE COMMAND"]
    for placement in ranks:
        if placement.devices:
            names = ",".join(map(str, placement.devices))
            lines.append(f"# rank {placement.rank} is near {names}, which a rankfile cannot give it")
        slots = str(placement.cpuset)
        if len(slots) > RANKFILE_SLOTS:
            raise RequestError(
                f"the CPU list of rank {placement.rank} has {len(slots)} characters,"
                f" a rankfile of Open MPI has space for {RANKFILE_SLOTS}: {slots}",
                hint=f"let every rank bind itself: mpirun -n {len(ranks)} --bind-to none"
                " ompbind exec -- COMMAND",
            )
        lines.append(f"rank {placement.rank}=localhost slot={slots}")
    return "\n".join(lines)
