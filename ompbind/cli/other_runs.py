"""The other live runs of this machine: for a plan that is only shown, and in messages."""

from __future__ import annotations

import os

from ompbind.cli.console import print_message
from ompbind.machine.model import Machine
from ompbind.planning.occupancy import NAMED_RUNS, LiveRun
from ompbind.planning.plan import Plan
from ompbind.planning.request import Request
from ompbind.registry.claim_format import make_division
from ompbind.registry.claims import DIRECTORY_VARIABLE, Registry
from ompbind.registry.live_runs import try_read_occupied


def read_other_runs(machine: Machine, request: Request, *, quiet: bool = False) -> tuple[LiveRun, ...]:
    """Read the other live runs for a plan that is only shown; print why they could not be read."""
    occupied, failure = try_read_occupied(machine, request)
    if failure and not quiet:
        print_registry_failure(f"this plan does not avoid the CPUs of other runs: {failure}")
    return occupied


def print_registry_messages(registry: Registry, *, verbose: bool = False) -> None:
    """Print which claims of other runs do not count; with `verbose` also why claims failed."""
    if registry.ignored:
        print_message(registry.ignored)
    print_registry_failure(registry.failure, verbose=verbose)


def print_differing_ranks(plan: Plan, registry: Registry) -> None:
    """Warn of ranks of the same job on this machine that have read other configuration files.

    Otherwise warn of ranks that have divided the CPUs in another way, as their options differ.
    """
    digest, division = plan.request.configuration.digest, make_division(plan)
    ranks = [run for run in registry.job_runs if run.configuration != digest]
    effect, advice = "have read other configuration files", "start all ranks in one directory"
    if not ranks:
        ranks = [run for run in registry.job_runs if run.division != division]
        effect, advice = "have divided the CPUs in another way", "give all ranks the same options"
    if ranks:
        pids = ", ".join(str(run.pid) for run in ranks[:NAMED_RUNS])
        text = f"other ranks of this job (pid {pids}) {effect}"
        print_message(f"warning: {text}: {advice}, or plans may overlap")


def print_registry_failure(failure: str, *, verbose: bool = False) -> None:
    """Print why claims failed: with `verbose`, and as a warning if the user named their directory."""
    if failure and os.environ.get(DIRECTORY_VARIABLE):
        hint = f"{DIRECTORY_VARIABLE} must name a directory made with 'mkdir -m 1777'"
        print_message(f"warning: {failure} ({hint})")
    elif failure and verbose:
        print_message(failure)
