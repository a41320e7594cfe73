"""Which rank `ompbind exec` becomes: by hand, from the variables of a launcher, or a single rank."""

from __future__ import annotations

import os

from ompbind.cli.options.values import Values
from ompbind.cpuset import count, named
from ompbind.errors import RequestError
from ompbind.launchers.recognition import may_have_variables
from ompbind.machine.model import Machine
from ompbind.machine.sources.filesystem import DirectoryRoot
from ompbind.planning.rank_command import RankIdentity
from ompbind.planning.request import DEFAULT_STRATEGY, Request

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ompbind.launchers.ancestors import Ancestor
    from ompbind.launchers.table import LauncherRank

BY_HAND = "the caller"
"""The name of the launcher in messages, if options identify the rank."""


def find_rank(options: Values) -> LauncherRank | None:
    """Return the rank that the options or the variables of a launcher describe; None for a single rank.

    Raises RequestError if they contradict each other, or if some of them are missing.
    """
    rank = _read_options(options)
    if rank or not may_have_variables(os.environ):
        return rank
    from ompbind.launchers.table import find_launcher  # late: not every rank has a launcher

    return find_launcher(os.environ, _read_ancestors())


def is_first_on_machine(options: Values) -> bool:
    """Return whether this process prints the messages that are the same for all ranks on this machine."""
    rank = find_rank(options)
    return rank is None or rank.identity.local_rank == 0


def _read_ancestors() -> Iterator[Ancestor]:
    from ompbind.launchers.ancestors import read_ancestors  # late: not every rank has a launcher

    return read_ancestors(DirectoryRoot("/"), os.getpid())


def _read_options(options: Values) -> LauncherRank | None:
    """Return the rank that --local-rank and the options like it describe, None if they are not given.

    Without --rank and --size, all ranks of the job are on this machine. The rules of the options have checked
    which of them are given. Raises RequestError for numbers that contradict each other.
    """
    local_rank, local_size = options["local_rank"], options["local_size"]
    if local_rank is None or local_size is None:
        return None
    has_rank = options["rank"] is not None
    rank, size = (options["rank"], options["size"]) if has_rank else (local_rank, local_size)
    pairs = (("--local-rank", local_rank, "--local-size", local_size), ("--rank", rank, "--size", size))
    for name, number, limit_name, limit in pairs:
        if number >= limit:
            hint = f"{name} is 0 to {limit - 1}"
            raise RequestError(f"{name} {number} and {limit_name} {limit} contradict each other", hint=hint)
    if local_size > size:
        text = f"--local-size {local_size} and --size {size} contradict each other"
        raise RequestError(text, hint="--size is the number of ranks on all machines")
    from ompbind.launchers.ancestors import find_starter  # late: few ranks are identified by hand
    from ompbind.launchers.table import LauncherRank

    identity = RankIdentity(
        placement_index=local_rank, rank=rank, size=size, local_rank=local_rank, local_size=local_size
    )
    starter = find_starter(tuple(_read_ancestors()), ())
    return LauncherRank(launcher=BY_HAND, identity=identity, run_id=f"ranks-{os.getppid()}", starter=starter)


def make_single_identity(options: Values) -> RankIdentity:
    """Return the identity of a single rank; print a message in the script of a batch job.

    Raises RequestError if several ranks are requested.
    """
    if options["ranks"] != 1 or may_have_variables(os.environ):
        _explain_single_rank(options)
    return RankIdentity(placement_index=0, rank=0, size=1, local_rank=0, local_size=1)


def _explain_single_rank(options: Values) -> None:
    """Print why exec starts a single rank, in the script of a batch job.

    Raises RequestError if several ranks are requested.
    """
    # late: most single ranks are started without a launcher
    from ompbind.launchers.table import find_batch_script, render_launcher_names

    script_of = find_batch_script(os.environ, _read_ancestors())
    why, use = "no launcher has started this process", f"use one of {render_launcher_names()}"
    if script_of:
        why = f"this is the script or shell of a {script_of.name} job, not one of its ranks"
        use = f"write '{script_of.example[1]}'" if script_of.example else use
    if options["ranks"] != 1:
        text = f"-n {options.text('ranks')}: {why}, so exec starts a single rank"
        raise RequestError(text, hint=f"start several ranks with 'ompbind run', or {use}")
    if script_of and not options["quiet"]:
        _print_messages(f"{why}: exec starts a single rank (for several ranks, {use})")


def join_job(
    rank: LauncherRank, machine: Machine, request: Request, options: Values
) -> tuple[RankIdentity, Request]:
    """Return the identity of a launcher's rank and the request for its plan.

    The request is for all ranks on this machine; if the launcher has bound this rank, for its CPUs alone, and
    for its part of the CPU quota. A rank that sees only GPUs of its own keeps them.
    Raises RequestError if the number of ranks on this machine is unknown or contradicts -n.
    """
    from ompbind.launchers.ancestors import is_bound  # late: not every rank has a launcher

    size = _find_local_size(rank, request, options)
    identity, request = rank.identity.replace(local_size=size), request.replace(ranks=size)
    bound = size > 1 and is_bound(DirectoryRoot("/"), rank.starter, machine.allowed)
    if options["wait"] is not None:
        _check_wait(rank, identity, options, bound=bound)
    if identity.local_rank == 0 and options["verbose"]:
        _print_messages(*rank.unused)
    if bound and request.mask is None:
        if identity.local_rank == 0 and not options["quiet"]:
            cpus = named("CPU", machine.allowed)
            text = f"ranks are already bound by {rank.launcher}, rank {identity.rank} to {cpus}"
            effect = "--plan can only give them these CPUs" if request.plan else "they keep their CPUs"
            _print_messages(f"{text}; {effect}")
        identity, request = _request_own_cpus(identity, request, options)
    if not request.devices or request.plan:
        return identity, request
    from ompbind.cli.own_gpus import keep_own_gpus  # late: most runs use no devices

    return keep_own_gpus(identity, machine, request, rank.launcher, quiet=options["quiet"])


def _print_messages(*texts: str) -> None:
    from ompbind.cli.console import print_message  # late: few ranks print a message

    for text in texts:
        print_message(text)


def _request_own_cpus(
    identity: RankIdentity, request: Request, options: Values
) -> tuple[RankIdentity, Request]:
    """Return the identity of a bound rank and the request for its plan, which has no other rank."""
    size, service_cpus = identity.local_size, 0
    if request.has_service_cpus:
        from ompbind.planning.service_cpus import divide_service  # late: few ranks have service CPUs

        service_cpus = divide_service(request, size)[identity.local_rank]
    request = request.replace(
        ranks=1,
        outside_ranks=size - 1,
        first_rank=identity.local_rank,
        service_total=service_cpus,
        service_each=0,
    )
    if options["strategy"] == DEFAULT_STRATEGY:  # a strategy of --compat is for the whole machine
        request = request.replace(strategy=DEFAULT_STRATEGY, nodes=None)
    return identity.replace(placement_index=0), request


def _find_local_size(rank: LauncherRank, request: Request, options: Values) -> int:
    """Return the number of ranks on this machine; raises RequestError if it is unknown or contradicts -n."""
    known, local_rank = rank.identity.local_size, rank.identity.local_rank
    requested = options["ranks"] if options.is_given("ranks") else None
    size: int = requested or known or (len(request.plan.ranks) if request.plan else 0)
    if known and size != known and not rank.assumes_local_size:
        raise RequestError(
            f"-n {size}: {rank.launcher} has started {count(known, 'rank')} on this machine", hint="omit -n"
        )
    if size <= local_rank:
        raise RequestError(
            f"local rank {local_rank}: {rank.launcher} does not set the number of ranks on this machine",
            hint=f"give it with -n; it is at least {local_rank + 1}",
        )
    return size


def _check_wait(rank: LauncherRank, identity: RankIdentity, options: Values, *, bound: bool) -> None:
    """Raise RequestError where some ranks of a job could get CPUs while others still wait.

    Two such jobs could wait for each other. If one plan has all ranks of the job, the first rank that gets
    CPUs gets them for all.
    """
    reason = ""
    if identity.size > identity.local_size:
        reason = f"{rank.launcher} has started ranks on other machines too"
        hint = "let the launcher wait for CPUs, or omit --wait"
    elif bound:
        reason = f"{rank.launcher} has bound each rank to CPUs of its own"
        hint = "turn off the binding of the launcher, or omit --wait"
    if reason:
        from ompbind.cli.options.apply_rules import render_given  # late: few ranks wait

        option = render_given(options, options.options["wait"])
        text = f"{option}: {reason}, so two jobs could wait for each other without end"
        raise RequestError(text, hint=hint)
