"""The note of a plan on cores of different kinds."""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet, named
from ompbind.planning.plan import Note, Plan


def explain_kinds(plan: Plan) -> Iterator[Note]:
    """Explain that ranks, or threads of one rank, run on cores of different kinds and speed."""
    used = plan.used
    kinds = [kind for kind in plan.machine.kinds if not kind.cpus.isdisjoint(used)]
    if len(kinds) < 2:
        return
    mixed = CpuSet(
        placement.rank
        for placement in plan.placements
        if sum(not kind.cpus.isdisjoint(placement.compute) for kind in kinds) > 1
    )
    verb = "mixes" if len(mixed) == 1 else "mix"
    subject = f"{named('rank', mixed)} {verb}" if mixed else "ranks differ in"
    cpus_by_kind = "; ".join(f"{kind.name}: {named('CPU', kind.cpus & used)}" for kind in kinds)
    remedy = " (--core-kind selects one kind)" if len({kind.name for kind in kinds}) > 1 else ""
    text = f"{subject} kinds of cores, and slower cores finish later{remedy}: {cpus_by_kind}"
    yield Note(code="mixed-kinds", text=text)
