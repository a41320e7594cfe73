"""`ompbind exec`: become one rank of a launcher's job; no process of ompbind remains."""

import os
from typing import NoReturn

import click

from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.exec_identity import find_rank, prepare_rank
from ompbind.cli.option import VerbContext
from ompbind.cli.plan_messages import print_changed_variables, print_warnings
from ompbind.cli.register import (
    Registered,
    plan_or_suggest,
    print_differing_ranks,
    print_registry_messages,
    read_other_runs,
    register_run,
)
from ompbind.cli.settings import make_planning_settings
from ompbind.cli.verb import Verb
from ompbind.errors import RequestError
from ompbind.execution.spawn import exec_command
from ompbind.launchers.find import render_launcher_names
from ompbind.launchers.launchers import LAUNCHERS
from ompbind.machine.read.linux import LIVE
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import (
    RankIdentity,
    RunSpec,
    find_changed,
    make_command,
    mask_secrets,
)
from ompbind.registry.claims import Claim
from ompbind.registry.registry import make_run_identity

EXAMPLES = (
    *(launcher.example for launcher in LAUNCHERS if launcher.example),
    ("Four cores, no launcher", "ompbind exec -m core:0-3 -- ./app"),
    ("The first of two ranks that a script starts", "ompbind exec --local-rank 0 --local-size 2 -- ./app"),
)

HELP = f"""Become one rank of a job that a launcher started: {render_launcher_names()}.

The local rank and the number of ranks on this machine are read from the environment. Every rank plans for
all of them, binds itself to its own CPUs and becomes the command.
"""

DETAILS = """Use -n if the launcher does not set the number of ranks on this machine. A rank that the launcher
has already bound keeps its CPUs. Without a launcher, exec starts a single rank, or the rank that --local-rank
and --local-size identify. --verify is not available, because no process of ompbind remains. -v prints a line
for each rank, with its CPUs. --dry-run prints the plan of the machine too, and starts nothing.
"""


def _prints_warnings(ctx: click.Context) -> bool:
    assert isinstance(ctx, VerbContext)
    rank = find_rank(make_planning_settings(ctx))  # the messages are the same for all ranks on this machine
    return rank is None or rank.identity.local_rank == 0


def exec_rank(ctx: click.Context) -> int:
    """Become one rank of a launcher's job; return 0 after a dry run."""
    assert isinstance(ctx, VerbContext)
    settings = make_planning_settings(ctx)
    if settings.task_prolog:
        from ompbind.cli.task_prolog import run_task_prolog  # noqa: PLC0415 - door: --task-prolog

        return run_task_prolog(settings)
    if settings.topology != LIVE and not settings.dry_run:
        raise RequestError(
            "--topology: a rank can only run on this machine", hint="add --dry-run, or omit --topology"
        )
    rank = find_rank(settings)
    identity, machine, request, spec = prepare_rank(settings, rank, f"exec-{os.getpid()}")
    if settings.dry_run:
        from ompbind.report.plan import render_plan  # noqa: PLC0415 - door: --dry-run

        others = read_other_runs(machine, request, quiet=settings.quiet)
        plan = plan_or_suggest(machine, request, others)
        shown = _render_rank(plan, identity, spec)
        write_stdout(f"{render_plan(plan, read_screen())}\n\n{shown}" if identity.local_rank == 0 else shown)
        return 0
    run_identity = make_run_identity(spec.run_id)
    if rank:
        run_identity = run_identity.replace(placement_index=identity.placement_index, rank=identity.rank)
    found = register_run(machine, request, run_identity, settings)
    if not settings.quiet:
        _print_before_start(found, identity, spec, verbose=settings.verbose)
    return _become(found.plan, identity, spec, found.claim)


def _print_before_start(found: Registered, identity: RankIdentity, spec: RunSpec, *, verbose: bool) -> None:
    """Print warnings, and with `verbose` the line about this rank, before it starts."""
    plan, registry = found.plan, found.registry
    if identity.local_rank == 0:
        print_warnings(plan)
        print_changed_variables(spec.base, find_changed(plan, spec))
    elif plan.request.outside_ranks:  # the first rank does not know the devices of a bound rank
        print_warnings(plan, codes=("device-distance", "device-far"))
    if registry.ignored or registry.failure or registry.job_runs:
        if identity.local_rank == 0:
            print_registry_messages(registry, verbose=verbose)
        print_differing_ranks(plan, registry)
    if verbose:
        for line in _render_rank(plan, identity, spec).splitlines():
            print_message(line)


def _render_rank(plan: Plan, identity: RankIdentity, spec: RunSpec) -> str:
    """Return the line about this rank, and lines with what was filled for it."""
    from ompbind.report.plan import render_command, render_rank  # noqa: PLC0415 - door: texts of a plan

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


VERB = Verb(
    "exec",
    exec_rank,
    help=HELP,
    summary="Become one rank of a job that Slurm, MPI or another launcher started.",
    page="launchers.md",
    examples=EXAMPLES,
    details=DETAILS,
    warns_of_variables=True,
    words="command",
    prints_warnings=_prints_warnings,
)
