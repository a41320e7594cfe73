"""Plan × command × environment → one `RankCommand` for each rank: what would run, before anything does.

A *seat* is where a rank sits in the whole job: its global and local number, and both sizes.
"""

import re
from collections.abc import Mapping

from ompbind.cpuset import CpuSet
from ompbind.errors import RequestError
from ompbind.openmp.runtimes import STANDARD
from ompbind.openmp.variables import find_inherited, make_openmp_variables
from ompbind.planning.plan import MemoryPolicy, Placement, Plan
from ompbind.planning.rank_variables import (
    OMPBIND_CPUS,
    OMPBIND_RANK,
    OMPBIND_RESERVED_CPUS,
    OMPBIND_RUN_ID,
    OMPBIND_WORKER_NAME,
)
from ompbind.planning.request import Request
from ompbind.planning.runtime_choice import choose_syntax, knows_reset
from ompbind.record import Record

_PAIR = set(STANDARD)
"""Variables that belong together: the one without the other means something else in each runtime."""


class RankIdentity(Record):
    """The numbers of one rank, of the whole job and among those of this machine, and its slot in the plan."""

    slot: int
    rank: int
    size: int
    local_rank: int
    local_size: int


class Job(Record):
    """What all ranks have in common: the command, the caller's environment, and the user's words.

    `extra` are the (NAME, value) pairs of --env, `keep` tells to leave inherited variables alone,
    `consumed` are the variables that gave options to this run, and so are not for what ranks start.
    `freeze` is the folder to put first in PYTHONPATH, whose Pythons keep their thread counts; "" is none.
    """

    argv: tuple[str, ...]
    run_id: str
    base: Mapping[str, str]
    extra: tuple[tuple[str, str], ...] = ()
    keep: bool = False
    consumed: tuple[str, ...] = ()
    freeze: str = ""


class RankCommand(Record):
    """One rank, ready to start; `cpus` is None where the process is not to be confined.

    `memory` is the policy for its memory, None where it has the one that it inherits.
    """

    rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cpus: CpuSet | None
    memory: MemoryPolicy | None = None


def make_local_identities(plan: Plan) -> list[RankIdentity]:
    """Return the seats of a job that has no rank on any other machine."""
    size = len(plan.placements)
    return [RankIdentity(slot=i, rank=i, size=size, local_rank=i, local_size=size) for i in range(size)]


def make_variables(plan: Plan, identity: RankIdentity, job: Job) -> dict[str, str | None]:
    """Return all variables of one rank that ompbind decides: value, or None for "unset".

    What the caller's environment already has is left out when the job keeps inherited variables.
    """
    placement = plan.placements[identity.slot]
    threads = make_thread_variables(placement, plan.request)
    if job.keep:
        kept = _PAIR if _PAIR & job.base.keys() else set()
        threads = {name: value for name, value in threads.items() if name not in job.base.keys() | kept}
    variables = {
        **dict.fromkeys(name for name in job.consumed if name in job.base),
        **threads,
        **_identity(placement, identity, job),
        **{name: _fill(value, placement, (identity, job)) for name, value in job.extra},
    }
    workload = plan.request.workload
    if workload and workload.preload:  # it has in it what --env says of LD_PRELOAD
        preload = ":".join(workload.preload)
        told = "LD_PRELOAD" in dict(job.extra)
        variables["LD_PRELOAD"] = _fill(preload, placement, (identity, job)) if told else preload
    if job.freeze:  # the value may be the user's: what is put before it takes nothing from it
        given = variables.get("PYTHONPATH", job.base.get("PYTHONPATH"))
        variables["PYTHONPATH"] = _put_first(job.freeze, given or "")
    return variables


def make_thread_variables(placement: Placement, request: Request) -> dict[str, str | None]:
    """Return every variable that decides the threads of a rank and their binding; None stands for "unset"."""
    return make_openmp_variables(
        placement.cpus,
        placement.places,
        placement.threads,
        bind=request.bind,
        proc_bind=request.proc_bind,
        syntax=choose_syntax(request),
        reset=knows_reset(request),
    )


def make_command(plan: Plan, identity: RankIdentity, job: Job) -> RankCommand:
    """Make the command of one rank, with an environment of its own."""
    env = dict(job.base)
    for name, value in make_variables(plan, identity, job).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    placement = plan.placements[identity.slot]
    cpus = placement.cpuset if plan.machine.bindable else None
    return RankCommand(rank=identity.rank, argv=job.argv, env=env, cpus=cpus, memory=placement.memory)


def find_changed(plan: Plan, job: Job) -> dict[str, str | None]:
    """Return the caller's variables that ranks will not see as they are, with what ranks have instead.

    Inside another run of ompbind they are its own words, so none of them is news.
    """
    if job.keep or OMPBIND_RANK in job.base:
        return {}
    return find_inherited(job.base, make_thread_variables(plan.placements[0], plan.request))


def parse_assignment(text: str) -> tuple[str, str]:
    """Read NAME=VALUE; raises RequestError when there is no name or no "="."""
    name, equals, value = text.partition("=")
    if not (equals and name.isascii() and name.isidentifier()) or "\0" in value:
        raise RequestError(
            f"--env {text!r} is not NAME=VALUE",
            hint="names are of letters, digits and underscores, as in --env PORT=800{rank}",
        )
    return name, value


def _identity(placement: Placement, identity: RankIdentity, job: Job) -> dict[str, str | None]:
    return {
        "RANK": str(identity.rank),
        "LOCAL_RANK": str(identity.local_rank),
        "WORLD_SIZE": str(identity.size),
        "LOCAL_WORLD_SIZE": str(identity.local_size),
        OMPBIND_RUN_ID: job.run_id,
        OMPBIND_RANK: str(identity.rank),
        OMPBIND_CPUS: _in_order(placement),
        OMPBIND_RESERVED_CPUS: str(placement.reserved),
        OMPBIND_WORKER_NAME: f"{job.run_id}-rank-{identity.rank}",
    }


def _put_first(folder: str, path: str) -> str:
    """Put a folder first in a list of folders, once; an empty list names none, an empty item does."""
    others = [one for one in path.split(":") if one != folder] if path else []
    return ":".join([folder, *others])


def _in_order(placement: Placement) -> str:
    """Write the CPUs as a list, in kernel form where their order is that of the numbers."""
    if placement.cpus == tuple(placement.cpuset):
        return str(placement.cpuset)
    return ",".join(map(str, placement.cpus))


def _fill(value: str, placement: Placement, where: tuple[RankIdentity, Job]) -> str:
    """Put the rank's own values in place of {rank}, {cpus} and so on; other braces stay as they are."""
    if "{" not in value:
        return value
    identity, job = where
    fields = {
        "rank": str(identity.rank),
        "local_rank": str(identity.local_rank),
        "size": str(identity.size),
        "cpus": _in_order(placement),
        "run_id": job.run_id,
    }
    return re.sub(rf"\{{({'|'.join(fields)})\}}", lambda match: fields[match[1]], value)
