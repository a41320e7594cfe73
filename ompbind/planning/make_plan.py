"""`make_plan`: machine × request → plan, without touching the world."""

from ompbind.decide import decide_plan
from ompbind.errors import MaskError, OmpbindError, RequestError
from ompbind.placement import Plan
from ompbind.request import Request
from ompbind.strategies import STRATEGIES
from ompbind.topology import Machine


def make_plan(machine: Machine, request: Request) -> Plan:
    """Decide which rank gets which CPUs; equal arguments give equal plans.

    Raises MaskError when the mask does not fit the machine, with one that does, and PlanError when the
    request does not.

    >>> from ompbind import Request, make_plan, read_machine
    >>> plan = make_plan(read_machine("synthetic:pack:2 core:4 pu:2"), Request(ranks=2))
    >>> plan.placements[1].cpus, plan.placements[1].threads
    ((8, 10, 12, 14), 4)
    """
    if request.strategy not in STRATEGIES:
        known = f"known are {', '.join(STRATEGIES)}"
        raise RequestError(f"there is no strategy {request.strategy!r}", hint=known)
    try:
        return decide_plan(machine, request)
    except OmpbindError as error:
        if isinstance(error, MaskError):
            from ompbind.advice import suggest_mask  # late: most masks fit

            error.suggestion = suggest_mask(machine, request)
        if request.compat is not None and request.compat.read:
            error.hint += f" ({'; '.join(request.compat.read)})"
        raise
