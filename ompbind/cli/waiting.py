"""Wait with --wait: try again whenever other runs may have released CPUs."""

import time
from collections.abc import Callable
from typing import TypeVar

from ompbind.cli.console import print_message
from ompbind.cpuset import CpuSet
from ompbind.errors import PlanError
from ompbind.planning.other_runs import RunIdentity
from ompbind.planning.request import Sharing
from ompbind.registry.claim_files import read_run_info
from ompbind.registry.tickets import Ticket, take_ticket
from ompbind.report.ps import render_blockers

T = TypeVar("T")


def call_when_free(
    attempt: Callable[[], T | None],
    identity: RunIdentity,
    wanted: CpuSet,
    *,
    sharing: Sharing,
    limit_s: float,
    prints: bool,
) -> T:
    """Return the result of an attempt that succeeds; an attempt returns None if other runs prevent it.

    The run waits in the queue for the `wanted` CPUs: the first attempt comes when no earlier run wants them.
    With `prints`, a message names the runs that use the CPUs. Raises PlanError after the time limit, and
    ClaimError as `take_ticket`.
    """
    with take_ticket(identity, wanted, sharing) as ticket:
        give_up_at = time.monotonic() + limit_s
        while (found := attempt() if ticket.is_first() else None) is None:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                text = f"the CPUs are not free after {limit_s:g} s: {_render_blockers(ticket)}"
                raise PlanError(text, hint="wait longer, or name other CPUs with --mask")
            if prints:
                print_message(f"waiting for CPUs: {_render_blockers(ticket)}")
                prints = False
            ticket.sleep(left_s)
        return found


def _render_blockers(ticket: Ticket) -> str:
    return render_blockers(read_run_info(ticket.read_blockers())) or "another run has just released them"
