"""The option --wait: plan and register once other runs have released the CPUs."""

import time
from collections.abc import Callable

from ompbind.cli.console import print_message
from ompbind.cli.planning import Registered, plan_and_register, plan_or_suggest
from ompbind.errors import MaskError, PlanError
from ompbind.machine.model import Machine
from ompbind.planning.occupancy import LiveRun, RunIdentity, occupied_cores
from ompbind.planning.planner import find_possible_cpus
from ompbind.planning.request import Request
from ompbind.record import Record
from ompbind.registry.claims import lock_registry
from ompbind.registry.read_run_info import read_run_info
from ompbind.registry.tickets import Ticket, take_ticket
from ompbind.report.waiting import render_blockers


class Wait(Record):
    """How to wait: for at most `limit_s` seconds, and whether a message names the runs that use the CPUs."""

    limit_s: float
    prints: bool = True


def plan_when_free(
    read_machine: Callable[[], Machine], request: Request, identity: RunIdentity, wait: Wait
) -> Registered:
    """Plan and register; wait while earlier runs that wait, or live runs, prevent it.

    Raises PlanError after the time limit, and at once the errors that are not due to other runs.
    """
    give_up_at, prints = time.monotonic() + wait.limit_s, wait.prints
    machine = read_machine()
    plan_or_suggest(machine, request, ())
    with take_ticket(identity, find_possible_cpus(machine, request), request.sharing) as ticket:
        while isinstance(found := _try_to_plan(read_machine, request, identity, ticket), tuple):
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                text = f"the CPUs are not free after {wait.limit_s:g} s: {_render(found)}"
                raise PlanError(text, hint="wait longer, or name other CPUs with --mask")
            if prints and found:
                print_message(f"waiting for CPUs: {_render(found)}")
                prints = False
            ticket.sleep(left_s)
        return found


def _try_to_plan(
    read_machine: Callable[[], Machine], request: Request, identity: RunIdentity, ticket: Ticket
) -> Registered | tuple[LiveRun, ...]:
    """Plan and register if no earlier run waits; return the runs to wait for if this is not possible yet.

    The machine is read each time: its allowed CPUs can change while the run waits.
    """
    if not ticket.is_first():
        return ticket.read_earlier()
    machine = read_machine()
    plan_or_suggest(machine, request, ())
    with lock_registry(request.sharing, identity.replace(started=int(time.time()))) as registry:
        try:
            plan, claim = plan_and_register(machine, request, registry)
        except (PlanError, MaskError):
            wanted = find_possible_cpus(machine, request)
            return tuple(run for run in registry.occupied if occupied_cores(machine, run) & wanted)
        return Registered(plan=plan, claim=claim, registry=registry)


def _render(runs: tuple[LiveRun, ...]) -> str:
    return render_blockers(read_run_info(runs)) or "another run has just registered"
