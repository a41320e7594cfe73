"""A plan for people: a table."""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet, count
from ompbind.machine.model import Level, index_by_cpu
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode
from ompbind.report.text import Column, render_cpus, render_paragraph, render_table, wrap_indented
from ompbind.report.topology_json import render_summary
from ompbind.text import plain


def render_plan(plan: Plan) -> str:
    """Render the plan as a table with its notes."""
    ranks = plan.placements
    core_of = index_by_cpu(plan.machine.at(Level.CORE))
    cores = [len({core_of[cpu] for cpu in one.cpus}) for one in ranks]
    columns = [
        Column(title="rank", cells=[str(one.rank) for one in ranks], right=True),
        Column(title="threads", cells=[str(one.threads) for one in ranks], right=True),
        Column(title="cores", cells=list(map(str, cores)), right=True),
        Column(title="node", cells=[str(CpuSet(one.nodes)) or "-" for one in ranks], grows=True),
        Column(title="CPUs", cells=[render_cpus(one.cpuset) for one in ranks], grows=True),
        Column(title="OpenMP places", cells=[_places(plan, one) for one in ranks], grows=True),
    ]
    if plan.reserved:
        reserved = [str(one.reserved) or "-" for one in ranks]
        columns.insert(-1, Column(title="reserved", cells=reserved, grows=True))
    if plan.request.memory is not MemoryMode.LOCAL:
        columns.insert(4, Column(title="memory", cells=[str(one.memory or "-") for one in ranks]))
    notes = [render_paragraph("warning" if note.warning else "note", note.text) for note in plan.notes]
    return "\n".join([f"{render_heading(plan)}\n", render_table(columns), *([""] if notes else []), *notes])


def render_heading(plan: Plan) -> str:
    """Say in two lines how many ranks are planned, how, and on what machine."""
    request = plan.request
    masked = request.names_each_rank or request.is_unbound
    return make_heading([plan], "mask" if masked else request.strategy)


def make_heading(plans: Sequence[Plan], strategy: str) -> str:
    """Say of how many ranks plans are, if all are of as many, by which strategy, and for what machine."""
    machine, counts = plans[0].machine, {len(plan.placements) for plan in plans}
    where = "this machine" if machine.source == "live" else plain(machine.source)
    ranks = f"{count(counts.pop(), 'rank')}, " if len(counts) == 1 else ""
    return "\n".join(map(wrap_indented, (f"{ranks}{strategy}, on {where}:", render_summary(machine))))


def _places(plan: Plan, one: Placement) -> str:
    """Say in few words which places the threads of a rank have."""
    if not one.places:
        return "none"
    if plan.request.bind is Bind.RANK:
        return "1: all its CPUs"
    lists = [str(place) for place in one.places]
    if plan.request.bind is not Bind.EXACT:
        lists[0] = "all"
    return f"{len(lists)}: {' '.join(lists)}"
