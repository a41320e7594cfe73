"""Other cores for ranks with --cores: cores that no live run uses, if no rank loses by it.

If a plan uses cores of other runs, a second plan avoids these. It replaces the first plan if each rank keeps
its numbers of cores, CPUs and threads, and crosses no more domains. Containers with a CPU quota and no cpuset
do not see each other: the number of the container chooses one of the disjoint places that cross no more.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import le

from ompbind.errors import OmpbindError
from ompbind.machine.model import KIND, Machine
from ompbind.planning.other_runs import LiveRun, find_shared_cpus, render_occupancy
from ompbind.planning.placing import count_domains
from ompbind.planning.plan import Note, Plan
from ompbind.planning.request import Requests, Sharing, change_requests


def plan_on_free_cores(
    machine: Machine, request: Requests, runs: Sequence[LiveRun], make_plan: Callable[..., Plan]
) -> Plan:
    """Return the plan beside other live runs, with a note that says why if it is a second plan."""
    plan = make_plan(machine, change_requests(request, sharing=Sharing.WARN), runs)
    shared = find_shared_cpus(machine, runs, plan.used | plan.reserved)
    starts = (*_find_start(plan), *([0] if shared else []))
    sizes, costs = _measure(plan) if starts else ([], [])
    for start in starts:
        with suppress(OmpbindError):
            moved = make_plan(machine, change_requests(request, sharing=Sharing.AVOID, start=start), runs)
            new_sizes, new_costs = _measure(moved)
            if sizes != new_sizes or not all(map(le, new_costs, costs)):
                continue
            text = (
                f"this container begins at CPU {moved.placements[0].cpus[0]}: other containers with a quota"
            )
            note = Note(code="quota-cpus", text=f"{text} mostly begin elsewhere (--share: at the first core)")
            if shared:
                text = f"free cores are used: {render_occupancy(machine, runs, shared)}"
                note = Note(code="avoided", text=f"{text} (--share plans as if no other run was live)")
            return moved.replace(notes=(*(each for each in moved.notes if each.code != note.code), note))
    return plan


def _find_start(plan: Plan) -> Iterator[int]:
    """Yield the row at which the cores of a container begin."""
    machine, request, table = plan.machine, plan.parts[0].request, plan.machine.table
    usable = machine.default_cpus & machine.cpus_of_kind(request.core_kind)
    rows = table.rows(usable - find_shared_cpus(machine, plan.occupied, usable))
    first, places, at = table.rows(plan.placements[0].cpuset), list[int](), 0
    while request.container and at + len(first) + request.reserve <= len(rows):
        domains = count_domains(table, [rows[at : at + len(first)], first])
        is_good = all(number <= most for number, most in domains)
        places += [rows[at]] if is_good else []
        at += len(first) + request.reserve if is_good else 1
    if places:
        yield places[request.container % len(places)]


def _measure(plan: Plan) -> tuple[list[int], list[int]]:
    """Return what each rank has, and what should not increase: its slow cores, far memory, and domains."""
    table, ranks = plan.machine.table, plan.placements
    kinds = table.column(KIND)  # the strongest is 0
    slow = (sum(kinds[row] or 0 for row in table.rows(rank.compute)) for rank in ranks)
    parts = ((table.rows(rank.cpuset), rank.cpus, rank.cpuset, rank.reserved) for rank in ranks)
    sizes = [*(len(part) for own in parts for part in own), *(rank.threads for rank in ranks)]
    shares = [table.rows(cpus) for rank in ranks for cpus in (rank.compute, rank.cpuset)]
    far = (not {*rank.nodes} <= {*rank.memory_nodes} for rank in ranks)
    return sizes, [*slow, *far, *(number for level in count_domains(table, shares) for number in level)]
