"""Planning for the verbs: a plan, or an error that shows a mask that would work."""

from collections.abc import Sequence

from ompbind.errors import MaskError
from ompbind.machine.model import Machine
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.plan import Plan
from ompbind.planning.planner import make_plan
from ompbind.planning.request import MemoryMode, Request


def plan_or_suggest(machine: Machine, request: Request, occupied: Sequence[LiveRun]) -> Plan:
    """Make a plan; a MaskError gets the closest mask that would work, to be shown with it."""
    try:
        return make_plan(machine, request, occupied)
    except MaskError as error:
        from ompbind.planning.mask_suggestion import suggest_mask  # late: most masks fit

        error.suggestion = suggest_mask(machine, request, occupied)
        raise


def plan_here(machine: Machine, request: Request, occupied: Sequence[LiveRun]) -> Plan:
    """Make a plan for this machine, with the memory policies that this process can really set.

    Raises LaunchError when a strict request is not met.
    """
    plan = plan_or_suggest(machine, request, occupied)
    if request.memory is MemoryMode.LOCAL:
        return plan
    from ompbind.execution.mempolicy import settle_memory  # late: few runs have memory policies

    return settle_memory(plan)
