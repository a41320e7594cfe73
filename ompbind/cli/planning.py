"""Make the plans of verbs, and register them; the error for a wrong mask suggests a mask that works."""

from __future__ import annotations

import time

from ompbind.errors import MaskError, PlanError
from ompbind.machine.model import Machine
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.plan import Plan
from ompbind.planning.planner import find_possible_cpus, make_plan
from ompbind.planning.request import MemoryMode, Request
from ompbind.record import Record
from ompbind.registry.claim_writing import Claim
from ompbind.registry.claims import Registry, lock_registry

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    # few runs wait
    from ompbind.cli.waiting import Wait
    from ompbind.planning.occupancy import LiveRun, RunIdentity


def read_planning_machine(values: Mapping[str, Any]) -> Machine:
    """Read the machine of --topology, with its devices if options or the plan of --plan name some."""
    saved = values.get("plan")
    named = values["devices"] or values["near"] or (saved and saved.device_kinds)
    return read_machine(values["topology"], devices=bool(named))


def plan_or_suggest(machine: Machine, request: Request, occupied: Sequence[LiveRun]) -> Plan:
    """Make a plan; a MaskError gets the closest mask that works as its suggestion."""
    try:
        return make_plan(machine, request, occupied)
    except MaskError as error:
        from ompbind.planning.mask_suggestion import suggest_mask  # late: most masks are valid

        error.suggestion = suggest_mask(machine, request, occupied)
        raise


class Registered(Record):
    """A plan, its claim (None if it could not be registered), and the registry with its messages."""

    plan: Plan
    claim: Claim | None
    registry: Registry


def register_run(
    machine: Machine, request: Request, identity: RunIdentity, options: Mapping[str, Any]
) -> Registered:
    """Plan and register among the other live runs; with --wait, once they have released the CPUs.

    Raises the errors of `plan_and_register`, and PlanError after the time limit of --wait.
    """
    if options["wait"] is None:
        with lock_registry(request.sharing, identity) as registry:
            plan, claim = plan_and_register(machine, request, registry)
            return Registered(plan=plan, claim=claim, registry=registry)
    from ompbind.cli.waiting import Wait  # late: few runs wait

    is_first = identity.placement_index in (None, 0)
    wait = Wait(limit_s=options["wait"] or float("inf"), prints=is_first and not options["quiet"])
    return register_when_free(lambda: read_planning_machine(options), request, identity, wait)


def register_when_free(
    read: Callable[[], Machine], request: Request, identity: RunIdentity, wait: Wait
) -> Registered:
    """Plan and register once no earlier run waits, and other live runs leave the CPUs.

    `read` returns the machine: its allowed CPUs can change while the run waits. Raises PlanError after the
    time limit, and at once the errors that are not due to other runs.
    """
    from ompbind.cli.waiting import call_when_free
    from ompbind.registry.tickets import take_ticket

    def attempt() -> Registered | None:
        return _try_to_register(read(), request, identity.replace(started=int(time.time())))

    machine = read()
    plan_or_suggest(machine, request, ())
    with take_ticket(identity, find_possible_cpus(machine, request), request.sharing) as ticket:
        return call_when_free(attempt, ticket, wait)


def _try_to_register(machine: Machine, request: Request, identity: RunIdentity) -> Registered | None:
    """Plan and register; return None if other runs prevent it."""
    plan_or_suggest(machine, request, ())
    with lock_registry(request.sharing, identity) as registry:
        try:
            plan, claim = plan_and_register(machine, request, registry)
        except (PlanError, MaskError):
            return None
        return Registered(plan=plan, claim=claim, registry=registry)


_TRIES = 8
"""How often a run plans again at most, because other runs have registered meanwhile."""


def plan_and_register(machine: Machine, request: Request, registry: Registry) -> tuple[Plan, Claim | None]:
    """Make a plan for this machine and register it, again while runs that start meanwhile change it.

    Raises the errors of `make_local_plan`, and ClaimError as `Registry`.
    """
    plan, claim = _plan_and_register(machine, request, registry)
    if claim is None and registry.failure:
        effect = "this run is not registered, so other runs may use its CPUs"
        registry.failure = f"{effect}: {registry.failure}"
    return plan, claim


def _plan_and_register(machine: Machine, request: Request, registry: Registry) -> tuple[Plan, Claim | None]:
    plan = make_local_plan(machine, request, registry.occupied)
    for _ in range(_TRIES):
        claim = registry.register(plan)
        if claim is None or not registry.find_new_runs(claim):
            return plan, claim
        before, plan = plan, make_local_plan(machine, request, registry.occupied)
        if plan.placements == before.placements:  # only the notes differ
            return plan, claim
        claim.release()
    return plan, registry.register(plan)


def make_local_plan(machine: Machine, request: Request, occupied: Sequence[LiveRun]) -> Plan:
    """Make a plan for this machine, without memory policies that this process cannot set.

    Raises LaunchError if a strict request needs a policy that cannot be set.
    """
    plan = plan_or_suggest(machine, request, occupied)
    if request.memory is MemoryMode.LOCAL:
        return plan
    # late: few runs have memory policies
    from ompbind.execution.mempolicy import replace_unsupported_policies

    return replace_unsupported_policies(plan)
