"""Finding out, before any rank starts, whether what was planned for memory can be had."""

from ompbind.errors import LaunchError
from ompbind.planning.request import Memory
from ompbind.registry.claims import Claimed, release


def settle(claimed: Claimed) -> Claimed:
    """Return a claimed plan with the memory policies that can be had here, and notes on all others.

    Raises LaunchError when a strict request is not met; the claim is taken back then.
    """
    if claimed.plan.request.memory is Memory.LOCAL:
        return claimed
    from ompbind.execution.mempolicy import settle_memory  # late: few runs have memory policies

    try:
        return claimed.replace(plan=settle_memory(claimed.plan))
    except LaunchError:
        if claimed.claim:
            release(claimed.claim)
        raise
