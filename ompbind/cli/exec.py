"""`ompbind exec`: become one rank inside an engine; no process of ompbind stays."""

import os
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from ompbind.cli.click_base import Verb
from ompbind.cli.console import say, say_changed, say_notes, say_registry
from ompbind.cli.planning import plan_here
from ompbind.cli.planning_options import QUIET, complete_files, make_job, make_request, planning_options
from ompbind.errors import RequestError
from ompbind.execution.affinity import exec_command
from ompbind.launchers.table import LAUNCHERS, LauncherRank, find_launcher, is_bound, launcher_names
from ompbind.machine.model import Machine
from ompbind.machine.sources.filesystem import FolderRoot
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.machine.sources.table import read_machine
from ompbind.planning.rank_command import RankCommand, RankIdentity, find_changed, make_command
from ompbind.planning.request import DEFAULT_STRATEGY, Request
from ompbind.registry.claims import Claim, lock_registry, make_claimant

EXAMPLES = (
    *(one.example for one in LAUNCHERS if one.example),
    ("One command on four cores, without any engine", "ompbind exec -m core:0-3 -- ./app"),
)

HELP = f"""Become one rank inside an engine: {launcher_names()}.

The local rank and the number of ranks on this machine are read from the environment (-n says
the number where the engine does not), the plan is made for all of them, and this process turns
into the command on the CPUs of its rank. A rank that the engine has bound already keeps these
CPUs for itself. Without an engine it is a single rank.
"""


@click.command(
    "exec",
    cls=Verb,
    help=HELP,
    examples=EXAMPLES,
    options_metavar="[OPTIONS] --",
    short_help="Become one rank of a job that Slurm, MPI or another launcher started.",
)
@planning_options
@QUIET
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=complete_files)
def exec_(cmd: tuple[str, ...], **options: Any) -> None:
    """Become one rank inside an engine."""
    if options["topology"] != LIVE:
        raise RequestError(
            "a rank runs on this machine, not on a recorded one", hint="see 'ompbind plan --topology'"
        )
    machine = read_machine()
    found = find_launcher(os.environ, os.getppid())
    request = make_request(options, cmd)
    identity, request = _inside(found, machine, request, options) if found else (_alone(options), request)
    job = make_job(options, cmd, found.run_id if found else f"exec-{os.getpid()}")
    claimant = make_claimant(job.run_id)
    if found:
        claimant = claimant.replace(slot=identity.slot, rank=identity.rank)
    with lock_registry(request.sharing, claimant) as registry:
        plan = plan_here(machine, request, registry.occupied)
        claim = registry.register(plan)
    if identity.local_rank == 0 and not options["quiet"]:
        say_notes(plan)
        say_changed(job.base, find_changed(plan, job))
        say_registry(registry)
    _become(make_command(plan, identity, job), claim)


def _become(command: RankCommand, claim: Claim | None) -> NoReturn:
    """Turn into the command, which keeps the claim; without it the claim is taken back."""
    if claim is None:
        exec_command(command)
    claim.hand_over()
    try:
        exec_command(command)
    finally:
        claim.release()


def _alone(options: Mapping[str, Any]) -> RankIdentity:
    """Return the seat of a single rank, which no engine has started."""
    if options["ranks"] not in (None, 1):
        raise RequestError(
            f"-n {options['ranks']}: no engine has started this process, so it is a single rank",
            hint=f"'ompbind run' starts several; known engines are {launcher_names()}",
        )
    return RankIdentity(slot=0, rank=0, size=1, local_rank=0, local_size=1)


def _inside(
    found: LauncherRank, machine: Machine, request: Request, options: Mapping[str, Any]
) -> tuple[RankIdentity, Request]:
    """Return the seat of a rank of an engine, and the request for all local ranks or what it was bound to."""
    told, asked, here = found.identity.local_size, options["ranks"], found.identity.local_rank
    size = asked if isinstance(asked, int) else told
    if told and size != told:
        raise RequestError(
            f"{found.engine} has started {told} ranks here, -n says {size}", hint="leave -n out"
        )
    if size <= here:
        raise RequestError(
            f"{found.engine} says that this is local rank {here}, but not how many ranks are here",
            hint=f"say it with -n, which is at least {here + 1}",
        )
    identity = found.identity.replace(local_size=size)
    request = request.replace(ranks=size)
    bound = size > 1 and is_bound(FolderRoot("/"), os.getpid(), machine.allowed)
    if bound and request.mask is None:
        if not options["quiet"]:
            say(f"rank {identity.rank}: {found.engine} has bound it to CPUs {machine.allowed}: it gets these")
        identity, request = identity.replace(slot=0), request.replace(ranks=1)
        if options["strategy"] == DEFAULT_STRATEGY:  # not what a compatibility variable says of the machine
            request = request.replace(strategy=DEFAULT_STRATEGY, nodes=None)
    return identity, request
