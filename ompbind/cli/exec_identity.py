"""Which rank `ompbind exec` becomes: by hand, from the variables of a launcher, or a single rank."""

import os
from collections.abc import Iterator, Sequence

from ompbind.cli.console import print_message
from ompbind.cli.register import limit_to_listed, read_planning_machine
from ompbind.cli.settings import Settings, make_request, make_run_spec, read_own_job_cpus
from ompbind.commands.environment import RankIdentity, RunSpec
from ompbind.commands.rank_command import make_spec_before_plan
from ompbind.commands.rank_variables import OMPBIND_CPUS, OMPBIND_SERVICE_CPUS
from ompbind.cpuset import EMPTY, CpuSet, count, join_words, named, union
from ompbind.errors import PlanError, RequestError
from ompbind.launchers import find
from ompbind.launchers.allocation import (
    Binding,
    find_binding,
    read_rank_cpus,
    read_task_masks,
    request_own_gpus,
)
from ompbind.launchers.find import LauncherRank
from ompbind.launchers.launchers import CPUS_PER_TASK, OTHER_RANKS, SLURM, render_unbound
from ompbind.machine.model import Machine
from ompbind.machine.read.linux import LIVE
from ompbind.machine.read.root import DirectoryRoot
from ompbind.planning.allocation import divide_service
from ompbind.planning.request import DEFAULT_STRATEGY, Request
from ompbind.text import whole_number

BY_HAND = "the caller"  # the name of the launcher in messages, if options identify the rank


def find_rank(settings: Settings) -> LauncherRank | None:
    """Return the rank that the options or the variables of a launcher describe; None for a single rank.

    With --local-rank, but without --rank and --size, all ranks of the job are on this machine. The checks of
    options have shown which of them are given. Raises RequestError if options or variables contradict each
    other, or if some variables are missing.
    """
    local_rank, local_size = settings.local_rank, settings.local_size
    if local_rank is None or local_size is None:
        return find.find_launcher(os.environ, find.read_ancestors())
    rank, size = local_rank, local_size
    if settings.rank is not None and settings.size is not None:
        rank, size = settings.rank, settings.size
    pairs = (("--local-rank", local_rank, "--local-size", local_size), ("--rank", rank, "--size", size))
    for name, number, limit_name, limit in pairs:
        if number >= limit:
            hint = f"{name} is 0 to {limit - 1}"
            raise RequestError(f"{name} {number} and {limit_name} {limit} contradict each other", hint=hint)
    if local_size > size:
        text = f"--local-size {local_size} and --size {size} contradict each other"
        raise RequestError(text, hint="--size is the number of ranks on all machines")
    identity = RankIdentity(
        placement_index=local_rank, rank=rank, size=size, local_rank=local_rank, local_size=local_size
    )
    starter = find.find_starter(tuple(find.read_ancestors()), ())
    return LauncherRank(launcher=BY_HAND, identity=identity, run_id=f"ranks-{os.getppid()}", starter=starter)


def _make_single_identity(settings: Settings) -> RankIdentity:
    """Return the identity of a single rank; print a message in the script of a batch job.

    Raises RequestError if several ranks are requested.
    """
    unknown = [f"{name}={os.environ[name]}" for name in OTHER_RANKS if os.environ.get(name)]
    if unknown and not settings.quiet:
        text = f"warning: {join_words(unknown)} is not read, so exec starts a single rank"
        print_message(f"{text} (give --local-rank and --local-size, which your launcher sets)")
    script_of = find.find_batch_script(os.environ, find.read_ancestors())
    why, use = "no launcher has started this process", f"use one of {find.render_launcher_names()}"
    if script_of:
        why = f"this is the script or shell of a {script_of.name} job, not one of its ranks"
        use = f"write '{render_unbound(script_of.name, os.environ)} ompbind exec -- COMMAND'"
    if settings.request.ranks != 1:
        text = f"-n {settings.sources.text('ranks')}: {why}, so exec starts a single rank"
        raise RequestError(text, hint=f"start several ranks with 'ompbind run', or {use}")
    if script_of and not settings.quiet:
        print_message(f"{why}: exec starts a single rank (for several ranks, {use})")
    return RankIdentity(placement_index=0, rank=0, size=1, local_rank=0, local_size=1)


def prepare_rank(
    settings: Settings, rank: LauncherRank | None, run_id: str
) -> tuple[RankIdentity, Machine, Request, RunSpec]:
    """Return all that a plan needs for a rank of a launcher, or for a single rank (None).

    `run_id` is for a single rank; --run-id overrides it. Raises the errors of `_join_job`.
    """
    machine = read_planning_machine(settings)
    spec = make_run_spec(settings, rank.run_id if rank else run_id)
    numbers = (rank.identity.rank, rank.identity.local_rank) if rank else (0, 0)
    request = make_request(settings, make_spec_before_plan(spec, *numbers), machine)
    if request.workload:  # its ranks are one job, which the launcher has started
        request = request.replace(workload=request.workload.replace(mpi=()))
    if settings.topology != LIVE:  # what the variables of this job mean on that machine
        machine, request = limit_to_listed(machine), request.replace(job_cpus=read_own_job_cpus())
    if rank:
        identity, machine, request = _join_job(rank, machine, request, settings)
    else:
        identity = _make_single_identity(settings)
    return identity, machine, request, spec


def _join_job(
    rank: LauncherRank, machine: Machine, request: Request, settings: Settings
) -> tuple[RankIdentity, Machine, Request]:
    """Return the identity of a launcher's rank, the machine with the CPUs of the rank, and the request.

    The request is for all ranks on this machine; if the launcher has bound this rank, for the ranks on its
    CPUs, and for their part of the CPU quota. A rank that sees only GPUs of its own keeps them.
    Raises RequestError if the number of ranks on this machine is unknown or contradicts -n.
    """
    size = _find_local_size(rank, settings)
    index, agents = find.find_agent(rank, os.environ)  # each of them counts its own ranks only
    identity, request = rank.identity.replace(local_size=size), request.replace(ranks=size * agents)
    identity = identity.replace(placement_index=index * size + identity.local_rank)
    is_live = settings.topology == LIVE
    launcher_cpus = find.read_launcher_cpus(rank.starter) if is_live else None
    binder, masks, own = _find_named_cpus(rank, request, machine.allowed, is_live=is_live)
    if own:
        machine, request = machine.replace(allowed=own), request.replace(job_cpus=None)
    binding, outer = find_binding(identity, machine.allowed, masks, launcher_cpus), _read_outer_cpus()
    # a launcher with other CPUs has passed the variable on to another machine
    limit = outer if launcher_cpus and launcher_cpus <= outer else machine.allowed
    strict = settings.request.strict
    if request.share:
        binding = binding.replace(overlaps=False)
    for text, hint in _find_conflicts(rank, binding, machine.allowed, limit, all_ranks=strict):
        _warn(text, hint, strict=strict, quiet=settings.quiet)
    bound, is_first = len(binding.sharers) < size, identity.local_rank == 0
    single = size == 1 and not masks and not (launcher_cpus or EMPTY) <= machine.allowed
    if settings.wait is not None:
        _check_wait(rank, identity, settings, bound=bound)
    if (bound or single) and request.mask is None and is_first and not settings.quiet:
        cpus = named("CPU", machine.allowed)
        binder = "an outer 'ompbind exec'" if machine.allowed == outer else binder
        of_rank = f"{binder}, rank {identity.rank} to {cpus}"
        text = f"ranks are already bound by {of_rank}; they keep their CPUs"
        text = f"ranks are bound as named by {of_rank}" if own else text
        if len(binding.sharers) > 1:
            text += f", and local {named('rank', binding.sharers)} divide these"
        unbound = render_unbound(binder, os.environ)
        print_message(text + f" (with '{unbound}', ompbind chooses)" * bool(unbound))
    if bound and request.mask is None:
        identity, request = _request_own_cpus(identity, request, settings, binding.sharers)
    if request.devices:
        quiet = settings.quiet
        identity, request = keep_own_gpus(identity, machine, request, rank.launcher, quiet=quiet)
    requested_cpus = request.requested_cpus * (request.rank_count or 1)
    return identity, machine, request.replace(requested_cpus=requested_cpus)


def _find_named_cpus(
    rank: LauncherRank, request: Request, allowed: CpuSet, *, is_live: bool
) -> tuple[str, Sequence[CpuSet], CpuSet]:
    """Return who names CPUs for each rank, the CPUs of each, and those of this rank where nothing binds it.

    A list of CPUs that are not `allowed` is not meant for this rank, and none counts beside a mask.
    """
    if request.mask is None:
        size = request.rank_count or 1
        system, listed = read_rank_cpus(os.environ, DirectoryRoot("/"), os.uname().nodename, size)
        if listed and (own := allowed & listed[rank.identity.local_rank]):
            return system, listed, own
    masks = read_task_masks(os.environ, rank.launcher)
    own = masks[rank.identity.local_rank % len(masks)] & allowed if masks and not is_live else EMPTY
    return rank.launcher, masks, own


def _find_conflicts(
    rank: LauncherRank, binding: Binding, allowed: CpuSet, outer: CpuSet, *, all_ranks: bool
) -> Iterator[tuple[str, str]]:
    """Yield warnings and hints about CPUs that a launcher gives to several ranks, or too few, or outside of
    the `outer` rank. The first rank of the machine speaks for the others, unless `all_ranks` is set.
    """
    bound = f"{rank.launcher} has bound"
    this, cpus = f"{bound} rank {rank.identity.rank} to", named("CPU", allowed)
    if allowed - outer:
        text = f"{this} {cpus}, outside of its outer rank, which has {named('CPU', outer)}"
        yield text, _turn_off_binding(rank)
    if rank.identity.local_rank and not all_ranks:
        return
    wanted = whole_number(os.environ.get(CPUS_PER_TASK)) or 0
    sizes = {len(mask) for mask in read_task_masks(os.environ, rank.launcher)}
    if rank.launcher == SLURM.name and len(allowed) < wanted and len(sizes) < 2:  # else a list counts
        hint = f"write 'srun --cpus-per-task={wanted}': srun does not take it from sbatch"
        yield f"{this} {cpus}, but {CPUS_PER_TASK} is {wanted}", hint
    size = rank.identity.local_size
    if binding.overlaps and size > len(binding.cpus):
        text = (
            f"{rank.launcher} has {named('CPU', binding.cpus)} for {size} ranks: their threads will compete"
        )
        yield text, "request a CPU for each rank, or confirm with --share that ranks share CPUs"
    elif binding.overlaps:
        text = f"{bound} several ranks to the same CPUs: their threads will compete"
        yield text, f"{_turn_off_binding(rank)}: then ompbind divides the CPUs"


def _turn_off_binding(rank: LauncherRank) -> str:
    """Return how to let ompbind choose the CPUs of ranks, for hints."""
    unbound = render_unbound(rank.launcher, os.environ)
    return f"write '{unbound}'" if unbound else "turn off the binding of the launcher, as --bind-to none does"


def _read_outer_cpus() -> CpuSet:
    """Return the CPUs of the rank of ompbind in which this process runs, empty if there is none."""
    texts = (os.environ.get(name) for name in (OMPBIND_CPUS, OMPBIND_SERVICE_CPUS))
    try:
        return union(CpuSet.from_list(text) for text in texts if text)
    except ValueError:
        return EMPTY


def _request_own_cpus(
    identity: RankIdentity, request: Request, settings: Settings, sharers: Sequence[int]
) -> tuple[RankIdentity, Request]:
    """Return the identity of a bound rank and the request for the plan of the ranks that share its CPUs."""
    size = identity.local_size
    shares = divide_service(request, size)
    request = request.replace(
        ranks=len(sharers),
        outside_ranks=size - len(sharers),
        local_ranks=tuple(sharers),
        service_total=sum(shares[rank] for rank in sharers),
        service_each=0,
        replicas=1,
    )
    if settings.request.strategy == DEFAULT_STRATEGY:  # a strategy of --compat is for the whole machine
        request = request.replace(strategy=DEFAULT_STRATEGY, nodes=None)
    return identity.replace(placement_index=sharers.index(identity.local_rank)), request


def _find_local_size(rank: LauncherRank, settings: Settings) -> int:
    """Return the number of ranks on this machine; raises RequestError if it is unknown or contradicts -n."""
    known, local_rank = rank.identity.local_size, rank.identity.local_rank
    requested = settings.request.rank_count if settings.sources.is_given("ranks") else None
    size = requested or known or 0
    if known and size != known and not rank.assumes_local_size:
        text = f"-n {size}: {rank.launcher} has started {count(known, 'rank')} on this machine"
        raise RequestError(text, hint="omit -n")
    if size <= local_rank:
        text = f"{rank.launcher} does not set the number of ranks on this machine"
        raise RequestError(text, hint=f"give it with -n; it is at least {local_rank + 1}")
    return size


def _check_wait(rank: LauncherRank, identity: RankIdentity, settings: Settings, *, bound: bool) -> None:
    """Raise RequestError where some ranks of a job could get CPUs while others still wait.

    Two such jobs could wait for each other. If one plan has all ranks of the job, the first rank that gets
    CPUs gets them for all.
    """
    if identity.size > identity.local_size:
        reason, remedy = "has started ranks on other machines too", "let the launcher wait for CPUs"
    elif bound:
        reason, remedy = "has bound each rank to CPUs of its own", _turn_off_binding(rank)
    else:
        return
    text = (
        f"{settings.sources.render('wait')}: {rank.launcher} {reason}, so two jobs could wait for each other"
    )
    raise RequestError(f"{text} without end", hint=f"{remedy}, or omit --wait")


def keep_own_gpus(
    identity: RankIdentity, machine: Machine, request: Request, launcher: str, *, quiet: bool
) -> tuple[RankIdentity, Request]:
    """Return the identity of a rank and a request in which the rank has the GPUs that only this rank sees.

    Both stay as they are if all ranks see the same GPUs. If the request is for several ranks, the variables
    of vendors stay; if their plan cannot have the GPUs, the first rank prints a warning, unless `quiet`.
    Raises PlanError for that if the request is strict.
    """
    size, by_slurm = identity.local_size, launcher == SLURM.name
    kept, index, conflict = request_own_gpus(request, machine, size, os.environ, by_slurm=by_slurm)
    if not conflict:
        return identity if index is None else identity.replace(placement_index=index), kept
    effect = "" if request.strict else ": ranks keep their GPUs, and get CPUs as without --devices"
    hint = "let all ranks on the machine see the same GPUs, with Slurm by --gpu-bind=none"
    quiet = quiet or identity.local_rank > 0
    _warn(f"rank {identity.rank} {conflict}{effect}", hint, strict=request.strict, quiet=quiet)
    return identity, kept


def _warn(text: str, hint: str, *, strict: bool, quiet: bool) -> None:
    if strict:
        raise PlanError(text, hint=hint)
    if not quiet:
        print_message(f"warning: {text} ({hint})")
