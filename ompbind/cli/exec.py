"""`ompbind exec`: become one rank of a launcher's job; no process of ompbind remains."""

from __future__ import annotations

import os

from ompbind.cli.exec_identity import find_rank, is_first_on_machine, join_job, make_single_identity
from ompbind.cli.options.values import Values
from ompbind.cli.planning import Registered, plan_or_suggest, read_planning_machine, register_run
from ompbind.cli.request import complete_request, make_request, make_run_spec
from ompbind.cli.verb import Verb
from ompbind.errors import RequestError
from ompbind.execution.affinity import exec_command
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import (
    RankIdentity,
    RunSpec,
    find_changed,
    make_command,
    make_spec_before_plan,
)
from ompbind.registry.claim_writing import Claim
from ompbind.registry.claims import make_run_identity

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from typing import NoReturn

    from ompbind.cli.description import Description


def _become_rank(options: Values) -> int:
    """Become one rank of a launcher's job; return 0 after a dry run."""
    if options["topology"] != LIVE:
        raise RequestError(
            "--topology: a rank can only run on this machine", hint="use 'ompbind plan --topology'"
        )
    machine = read_planning_machine(options)
    rank = find_rank(options)
    spec = make_run_spec(options, rank.run_id if rank else f"exec-{os.getpid()}")
    numbers = (rank.identity.rank, rank.identity.local_rank) if rank else (0, 0)
    request = make_request(options, make_spec_before_plan(spec, *numbers))
    request = complete_request(request, machine, options)
    if rank:
        identity, request = join_job(rank, machine, request, options)
    else:
        identity = make_single_identity(options)
    if request.plan:
        from ompbind.cli.plan_file import fit_plan  # late: most plans are made anew

        request = fit_plan(request, identity)
    if options["dry_run"]:
        from ompbind.cli.other_runs import read_other_runs  # late: most ranks start

        others = read_other_runs(machine, request, quiet=options["quiet"])
        _show(plan_or_suggest(machine, request, others), identity, spec)
        return 0
    run_identity = make_run_identity(spec.run_id)
    if rank:
        run_identity = run_identity.replace(placement_index=identity.placement_index, rank=identity.rank)
    found = register_run(machine, request, run_identity, options)
    if not options["quiet"]:
        _print_before_start(found, identity, spec, verbose=options["verbose"])
    return _become(found.plan, identity, spec, found.claim)


def _print_before_start(found: Registered, identity: RankIdentity, spec: RunSpec, *, verbose: bool) -> None:
    """Print warnings, and with `verbose` the line about this rank, before it starts."""
    # late: a quiet rank prints nothing
    from ompbind.cli.console import print_changed_variables, print_message, print_warnings

    plan, registry = found.plan, found.registry
    if identity.local_rank == 0:
        print_warnings(plan)
        print_changed_variables(spec.base, find_changed(plan, spec))
    elif plan.request.outside_ranks:  # the first rank does not know the devices of a bound rank
        print_warnings(plan, codes=("device-distance", "device-far"))
    if registry.ignored or registry.failure or registry.job_runs:
        from ompbind.cli.other_runs import print_differing_ranks, print_registry_messages  # late: few jobs

        if identity.local_rank == 0:
            print_registry_messages(registry, verbose=verbose)
        print_differing_ranks(plan, registry)
    if verbose:
        for line in _render_rank(plan, identity, spec).splitlines():
            print_message(line)


def _show(plan: Plan, identity: RankIdentity, spec: RunSpec) -> None:
    """Print what the rank would get, and for the first rank of the machine the plan."""
    from ompbind.cli.console import write_stdout  # late: a rank that starts needs no reports
    from ompbind.cli.terminal import read_screen
    from ompbind.report.plan import render_plan

    rank = _render_rank(plan, identity, spec)
    write_stdout(f"{render_plan(plan, read_screen())}\n\n{rank}" if identity.local_rank == 0 else rank)


def _render_rank(plan: Plan, identity: RankIdentity, spec: RunSpec) -> str:
    """Return the line about this rank, and lines with what was filled for it."""
    from ompbind.planning.secret_values import mask_secrets  # late: most ranks print no line
    from ompbind.report.plan import render_rank
    from ompbind.report.rank_commands import render_command

    shown = mask_secrets(spec)
    filled = render_command(make_command(plan, identity, shown), shown)
    return "\n".join(filter(None, (render_rank(plan, identity, os.uname().nodename), filled)))


def _become(plan: Plan, identity: RankIdentity, spec: RunSpec, claim: Claim | None) -> NoReturn:
    """Become the command of a rank, which keeps the claim; release the claim if that is not possible."""
    try:
        command = make_command(plan, identity, spec)
        if claim:
            claim.keep_across_exec()
        exec_command(command)
    finally:
        if claim:
            claim.release()


def _describe() -> Description:
    from ompbind.cli.exec_description import DESCRIPTION  # late: few command lines show the help

    return DESCRIPTION


VERB = Verb(
    name="exec",
    run=_become_rank,
    describe=_describe,
    warns_of_variables=True,
    words="command",
    is_reporting=is_first_on_machine,
)
