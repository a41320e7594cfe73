"""`make_plan`: machine × request → plan, without touching the world."""

from ompbind.decide import decide_plan
from ompbind.errors import MaskError, OmpbindError
from ompbind.placement import Plan
from ompbind.request import Request
from ompbind.topology import Machine


def make_plan(machine: Machine, request: Request) -> Plan:
    """Decide which rank gets which CPUs; equal arguments give equal plans.

    Raises MaskError when the mask does not fit the machine, with one that does, and PlanError when the
    request does not.
    """
    try:
        return decide_plan(machine, request)
    except OmpbindError as error:
        if isinstance(error, MaskError):
            from ompbind.advice import suggest_mask  # late: most masks fit

            error.suggestion = suggest_mask(machine, request)
        if request.compat is not None and request.compat.read:
            error.hint += f" ({'; '.join(request.compat.read)})"
        raise
