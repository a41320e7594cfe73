"""`ompbind exec`: become one rank of a launcher's job; no process of ompbind remains."""

import os
from typing import NoReturn

from ompbind.cli.console import (
    print_changed_variables,
    print_message,
    print_warnings,
)
from ompbind.cli.options.values import Values
from ompbind.cli.planning import plan_and_register, print_registry_messages
from ompbind.cli.request import make_request, make_run_spec
from ompbind.cli.unknown_variables import warn_of_variables
from ompbind.cli.verb import Verb
from ompbind.cpuset import count, named
from ompbind.errors import RequestError
from ompbind.execution.affinity import exec_command
from ompbind.launchers.table import LAUNCHERS, LauncherRank, find_launcher, is_bound, render_launcher_names
from ompbind.machine.model import Machine
from ompbind.machine.sources.filesystem import DirectoryRoot
from ompbind.machine.sources.linux.reader import LIVE
from ompbind.machine.sources.table import read_machine
from ompbind.planning.rank_command import RankCommand, RankIdentity, find_changed, make_command
from ompbind.planning.request import DEFAULT_STRATEGY, Request
from ompbind.registry.claims import Claim, lock_registry, make_run_identity

EXAMPLES = (
    *(launcher.example for launcher in LAUNCHERS if launcher.example),
    ("Four cores, no launcher", "ompbind exec -m core:0-3 -- ./app"),
)

HELP = f"""Become one rank of a job that a launcher started: {render_launcher_names()}.

The local rank and the number of ranks on this machine are read from the environment. Every rank plans for
all of them, binds itself to its own CPUs and becomes the command.
"""

DETAILS = """Use -n if the launcher does not set the number of ranks on this machine. A rank that the launcher
has already bound keeps its CPUs. Without a launcher, exec starts a single rank. --verify is not available,
because no process of ompbind remains.
"""


def _is_first_on_machine() -> bool:
    """Return whether this process prints the messages that are the same for all ranks on this machine."""
    rank = find_launcher(os.environ, os.getppid())
    return rank is None or rank.identity.local_rank == 0


def _become_rank(options: Values) -> NoReturn:
    """Become one rank of a launcher's job."""
    if options["topology"] != LIVE:
        raise RequestError(
            "--topology: a rank can only run on this machine", hint="use 'ompbind plan --topology'"
        )
    machine = read_machine()
    rank = find_launcher(os.environ, os.getppid())
    request = make_request(options)
    if rank:
        identity, request = _join_job(rank, machine, request, options)
    else:
        identity = _make_single_identity(options)
    spec = make_run_spec(options, rank.run_id if rank else f"exec-{os.getpid()}")
    run_identity = make_run_identity(spec.run_id)
    if rank:
        run_identity = run_identity.replace(placement_index=identity.placement_index, rank=identity.rank)
    with lock_registry(request.sharing, run_identity) as registry:
        plan, claim = plan_and_register(machine, request, registry)
    if identity.local_rank == 0 and not options["quiet"]:
        print_warnings(plan)
        print_changed_variables(spec.base, find_changed(plan, spec))
        print_registry_messages(registry)
    _become(make_command(plan, identity, spec), claim)


def _become(command: RankCommand, claim: Claim | None) -> NoReturn:
    """Become the command, which keeps the claim; release the claim if the command cannot be executed."""
    if claim is None:
        exec_command(command)
    claim.keep_across_exec()
    try:
        exec_command(command)
    finally:
        claim.release()


def _make_single_identity(options: Values) -> RankIdentity:
    """Return the identity of a single rank, without a launcher."""
    if options["ranks"] != 1:
        raise RequestError(
            f"-n {options.text('ranks')}: no launcher has started this process, so exec starts a single rank",
            hint=f"start several ranks with 'ompbind run', or use one of {render_launcher_names()}",
        )
    return RankIdentity(placement_index=0, rank=0, size=1, local_rank=0, local_size=1)


def _join_job(
    rank: LauncherRank, machine: Machine, request: Request, options: Values
) -> tuple[RankIdentity, Request]:
    """Return the identity of a launcher's rank and the request for its plan.

    The request is for all ranks on this machine; if the launcher has bound this rank, for its CPUs alone.
    Raises RequestError if the number of ranks on this machine is unknown or contradicts -n.
    """
    known, local_rank = rank.identity.local_size, rank.identity.local_rank
    requested = options["ranks"] if options.is_given("ranks") else None
    size = requested or known
    if known and size != known:
        raise RequestError(
            f"-n {size}: {rank.launcher} has started {count(known, 'rank')} on this machine", hint="omit -n"
        )
    if size <= local_rank:
        raise RequestError(
            f"local rank {local_rank}: {rank.launcher} does not set the number of ranks on this machine",
            hint=f"give it with -n; it is at least {local_rank + 1}",
        )
    identity = rank.identity.replace(local_size=size)
    request = request.replace(ranks=size)
    bound = size > 1 and is_bound(DirectoryRoot("/"), os.getpid(), machine.allowed)
    if not bound or request.mask is not None:
        return identity, request
    if identity.local_rank == 0 and not options["quiet"]:
        cpus = named("CPU", machine.allowed)
        text = f"ranks are already bound by {rank.launcher}, rank {identity.rank} to {cpus}"
        print_message(f"{text}; they keep their CPUs")
    request = request.replace(ranks=1)
    if options["strategy"] == DEFAULT_STRATEGY:  # a strategy of --compat is for the whole machine
        request = request.replace(strategy=DEFAULT_STRATEGY, nodes=None)
    return identity.replace(placement_index=0), request


VERB = Verb(
    name="exec",
    run=_become_rank,
    help=HELP,
    summary="Become one rank of a job that Slurm, MPI or another launcher started.",
    examples=EXAMPLES,
    details=DETAILS,
    find_warnings=warn_of_variables,
    words="command",
    is_reporting=_is_first_on_machine,
)
