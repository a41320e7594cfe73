"""A plan that was made before × this machine → plan: each rank gets the CPUs and devices that it had.

Nothing is chosen here: CPUs or devices that a rank cannot have are an error that names the rank.
"""

from collections.abc import Sequence

from ompbind.cpuset import CpuSet, named, union
from ompbind.errors import PlanError
from ompbind.machine.devices import Device
from ompbind.machine.fingerprint import LABELS, find_difference, make_fingerprint
from ompbind.machine.model import Machine
from ompbind.planning.conflicts import check_exclusive
from ompbind.planning.memory import add_policies
from ompbind.planning.notes import explain
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode, Request
from ompbind.planning.runtimes import check_runtimes, find_certain_runtimes
from ompbind.planning.saved_plan import REMEDY, SavedPlan, SavedRank
from ompbind.planning.strictness import check_strict


def make_saved_plan(machine: Machine, request: Request, occupied: Sequence[LiveRun]) -> Plan:
    """Return the plan of `request.plan` for this machine.

    Raises PlanError if it is a plan for another machine, or if a rank may not use what the plan gives it.
    """
    saved = request.plan
    assert saved is not None
    _check_machine(saved, machine)
    request = _restate(request, saved)
    check_runtimes(find_certain_runtimes(request))
    placements = tuple(_place(request, machine, row, rank) for rank, row in enumerate(saved.ranks))
    draft = Plan(
        machine=machine,
        request=request,
        placements=placements,
        reserved=union(placement.reserved for placement in placements) & machine.allowed,
        occupied=tuple(occupied),
    )
    draft = draft.replace(idle=machine.allowed - draft.reserved - draft.used)
    check_exclusive(draft)
    draft = add_policies(draft)
    # hardware threads are idle because the plan does not have them, not because of --smt
    plan = draft.replace(notes=tuple(note for note in explain(draft) if note.code != "smt"))
    if request.strict:
        check_strict(plan)
    return plan


def _restate(request: Request, saved: SavedPlan) -> Request:
    """Return the request with what the plan decides for all ranks."""
    if saved.memory not in map(str, MemoryMode):
        raise PlanError(f"{saved.name}: {saved.memory!r} is not a memory mode", hint=REMEDY)
    memory = MemoryMode(saved.memory)
    ranks = len(saved.ranks)
    return request.replace(ranks=ranks, bind=saved.bind, proc_bind=saved.proc_bind, memory=memory)


def _check_machine(saved: SavedPlan, machine: Machine) -> None:
    """Raise PlanError if the plan is for a machine with another fingerprint; the error says what differs."""
    own = make_fingerprint(machine)
    subject = find_difference(saved.fingerprint, own, saved.device_kinds)
    if not subject:
        return
    theirs, ours = (each.as_dict().get(subject, "0:") for each in (saved.fingerprint, own))
    label, numbers = LABELS[subject], (theirs.partition(":")[0], ours.partition(":")[0])
    why = f"the {label} differ"
    if subject == "arch":
        why = f"its {label} is {theirs}, that of this machine {ours}"
    elif numbers[0] != numbers[1]:
        why = f"its machine has {numbers[0]} {label}, this machine {numbers[1]}"
    raise PlanError(f"{saved.name} is a plan for another machine: {why}", hint=REMEDY)


def _place(request: Request, machine: Machine, row: SavedRank, rank: int) -> Placement:
    """Return the placement of one rank; raises PlanError if it may not use its CPUs, memory or devices."""
    name = request.plan.name if request.plan else ""
    if missing := row.cpuset - machine.allowed:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise PlanError(
            f"rank {rank}: {named('CPU', missing)} of {name} {is_or_are} not allowed",
            hint=f"only CPUs {machine.allowed} are allowed here; make the plan where ranks start",
        )
    _check_nodes(row, machine, f"rank {rank}", name)
    return Placement(
        rank=rank,
        cpus=row.cpus,
        places=row.places,
        threads=row.threads,
        nodes=row.nodes,
        memory_nodes=row.memory_nodes,
        devices=_find_devices(request, machine, row, rank),
        reserved=row.reserved,
        service_cpus=row.service_cpus,
    )


def _check_nodes(row: SavedRank, machine: Machine, rank: str, name: str) -> None:
    known = CpuSet(node.number for node in machine.nodes)
    if unknown := CpuSet((*row.nodes, *row.memory_nodes)) - known:
        raise PlanError(f"{rank}: {named('NUMA node', unknown)} of {name} does not exist", hint=REMEDY)
    allowed = known if machine.memory_allowed is None else machine.memory_allowed
    if missing := CpuSet(row.memory_nodes) - allowed:
        raise PlanError(
            f"{rank}: the memory of {named('NUMA node', missing)} of {name} is not allowed",
            hint=f"cpuset.mems allows {allowed or 'none'}; make the plan where ranks start",
        )


def _find_devices(request: Request, machine: Machine, row: SavedRank, rank: int) -> tuple[Device, ...]:
    """Return the devices of a rank as this machine has them; raises PlanError for one that is not visible."""
    if not row.devices:
        return ()
    present = {(device.kind, device.address, device.partition): device for device in machine.devices}
    visible = {device.name for device in request.visible.devices} if request.visible else set[str]()
    found = []
    for saved in row.devices:
        device = present.get((saved.kind, saved.address, saved.partition))
        if device is None or device.name not in visible:
            name = request.plan.name if request.plan else ""
            reason = "is not visible" if device else "does not exist"
            raise PlanError(
                f"rank {rank}: {saved.name} ({saved.address}) of {name} {reason}",
                hint="make the plan where ranks start, with the same visible devices",
            )
        found.append(device)
    return tuple(found)
