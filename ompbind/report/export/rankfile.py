"""A plan for Open MPI 4: a rankfile."""

from ompbind.errors import RequestError
from ompbind.planning.plan import Plan
from ompbind.report.export.ranks import check_memory, confined_ranks

RANKFILE_SLOTS = 48
"""Characters that a list of slots may have: mpirun writes "localhost slot=" and the list into 64 bytes."""


def render_rankfile(plan: Plan) -> str:
    """Render a rankfile for Open MPI 4; its first line is a comment with the options that go with it.

    Raises RequestError for lists that mpirun has no room for, and for --memory.
    """
    check_memory(plan, "a rankfile")
    ranks = confined_ranks(plan)
    options = f"-n {len(ranks)} --use-hwthread-cpus --mca rmaps_rank_file_physical 1"
    lines = [f"# mpirun {options} --rankfile THIS_FILE COMMAND"]
    for one in ranks:
        slots = str(one.cpuset)
        if len(slots) > RANKFILE_SLOTS:
            raise RequestError(
                f"the CPUs of rank {one.rank} take {len(slots)} characters,"
                f" a rankfile of Open MPI holds {RANKFILE_SLOTS}: {slots}",
                hint=f"let every rank bind itself: mpirun -n {len(ranks)} --bind-to none"
                " ompbind exec -- COMMAND",
            )
        lines.append(f"rank {one.rank}=localhost slot={slots}")
    return "\n".join(lines)
