"""Make the plans of verbs, register them among the other live runs, and print what a user should know."""

import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ompbind.cli import END
from ompbind.cli.console import print_message
from ompbind.cli.option import VerbContext
from ompbind.cli.settings import Settings
from ompbind.cli.suggestions import suggest_word
from ompbind.commands.environment import RunSpec, find_changed
from ompbind.commands.rank_variables import OMPBIND_RANK
from ompbind.cpuset import EMPTY, CpuSet, named
from ompbind.errors import MaskError, OmpbindError, OptionError, PlanError
from ompbind.launchers.allocation import JobNodes, read_listed_cpus
from ompbind.machine.model import Machine
from ompbind.machine.read import read_machine
from ompbind.machine.read.linux import LIVE
from ompbind.masks.mask import mask_text, parse_mask
from ompbind.planning.other_runs import NAMED_RUNS, LiveRun
from ompbind.planning.plan import Plan
from ompbind.planning.planner import find_possible_cpus, make_plan
from ompbind.planning.request import MemoryMode, Request, Requests, Sharing, change_requests, list_requests
from ompbind.procfs.reader import HOST_PID_NAMESPACE, read_affinity, read_pid_namespace
from ompbind.record import Record
from ompbind.registry.claims import Claim
from ompbind.registry.registry import (
    DIRECTORY_VARIABLE,
    Registry,
    RunInfo,
    make_division,
    read_run_info,
    try_read_occupied,
)


def read_planning_machine(settings: Settings, *groups: Settings) -> Machine:
    """Read the machine of --topology, with its devices if options name some.

    `groups` are further groups. Of this machine, only the CPUs that a batch system lists are allowed.
    """
    devices = any(group.request.devices or group.request.near for group in (settings, *groups))
    return limit_to_listed(read_machine(settings.topology, devices=devices))


def limit_to_listed(machine: Machine) -> Machine:
    """Return this machine with only the CPUs allowed that a batch system lists; all others as they are."""
    listed = machine.allowed & read_listed_cpus(os.environ) if machine.source == LIVE else None
    return machine.replace(allowed=listed) if listed else machine


def prefer_free_cores(request: Requests, machine: Machine) -> Requests:
    """Let ranks with --cores have free cores if none loses by it, unless an option says which cores.

    Not if a launcher has started copies of this process, nor if one of several groups requests no cores.
    """
    from ompbind.launchers import find  # noqa: PLC0415 - door: launchers

    for each in list_requests(request):
        chooses = each.mask or each.nodes or each.compat or each.near or each.devices
        if chooses or not each.cores or each.sharing is not Sharing.WARN:
            return request
    if find.find_copies(os.environ, find.read_ancestors()):
        return request
    is_limited = machine.source == LIVE and machine.quota and machine.allowed == machine.online
    number = 0 if os.environ.get(DIRECTORY_VARIABLE) or not is_limited else read_pid_namespace()
    container = 0 if number == HOST_PID_NAMESPACE else number
    return change_requests(request, sharing=Sharing.PREFER_FREE, container=container)


def plan_or_suggest(machine: Machine, request: Requests, occupied: Sequence[LiveRun]) -> Plan:
    """Make a plan; the hint of a MaskError has only masks that can be planned, also `all` if it can."""
    try:
        return make_plan(machine, request, occupied)
    except (MaskError, PlanError) as error:
        if isinstance(error, MaskError):
            error.hint += "; --mask all works"
            keep_working_masks(error, machine, request, occupied)
        with suppress(OmpbindError):
            _explain_binding(error, machine, request, occupied)
        raise


def _explain_binding(
    error: OmpbindError, machine: Machine, request: Requests, occupied: Sequence[LiveRun]
) -> None:
    """Change the hint if the launcher has bound this process, and would leave it enough CPUs otherwise."""
    from ompbind.launchers import find, launchers  # noqa: PLC0415 - door: launchers

    rank = find.find_launcher(os.environ, find.read_ancestors())
    if rank is None or machine.source != LIVE or OMPBIND_RANK in os.environ:  # bound by the outer `exec`
        return
    if isinstance(request, Request) and request.mask and len(request.mask.parts) == 1:
        error.hint += "; -m of `exec` has a part for each rank on this machine, as in -m '0-3|4-5'"
    by_slurm = rank.launcher == launchers.SLURM.name
    cpus = machine.online if by_slurm else find.read_launcher_cpus(rank.starter) or EMPTY
    if isinstance(request, Request) and request.outside_ranks:
        request = request.replace(ranks=rank.identity.local_size, outside_ranks=0, local_ranks=())
    make_plan(machine.replace(allowed=cpus), request, occupied)
    unbound = launchers.render_unbound(rank.launcher, os.environ)
    if by_slurm:
        error.hint += "; --cpus-per-task of srun requests more CPUs"
    elif unbound and machine.allowed < cpus:
        bound = f"{rank.launcher} has bound this process to {named('CPU', machine.allowed)}"
        error.hint = f"{bound}: write '{unbound} -n {rank.identity.size} ompbind exec ...'"


def keep_working_masks(
    error: OmpbindError, machine: Machine, request: Requests, occupied: Sequence[LiveRun] = ()
) -> None:
    """Remove each clause of a hint, which `; ` separates, with a mask that is impossible, also as one part.

    If nothing is left, the hint has the mask of the plan without a mask. With groups, no mask is tried.
    """

    def works(clause: str) -> bool:
        found = f" {END} " not in clause and re.search(_MASK, clause)  # else it is a corrected command line
        if not found or not isinstance(request, Request):
            return not found
        with suppress(OmpbindError):
            mask = parse_mask(shlex.split(found[1])[0])
            return bool(make_plan(machine, request.replace(mask=mask), occupied))
        return False

    clauses = ((clause, clause.replace("|", ",")) for clause in error.hint.split("; "))
    error.hint = "; ".join(filter(None, (next(filter(works, pair), "") for pair in clauses)))
    with suppress(OmpbindError):
        if not error.hint and isinstance(request, Request):
            placements = make_plan(machine, request.replace(mask=None), occupied).placements
            mask = mask_text(parse_mask("|".join(str(placement.cpuset) for placement in placements)))
            error.hint = next(filter(works, [f"--mask names CPUs, for example -m '{mask}'"]), "")


_MASK = r"(?<!python )(?:-m|--mask) (?!MASK|names)('[^']*'|[^\s;?]*[^\s;?,])"


def check_hint(error: Exception, ctx: VerbContext) -> None:
    """Keep only masks that work in the hint of an error about a command line, with its -n and --topology."""
    if isinstance(error, MaskError) or (isinstance(error, OptionError) and re.search(_MASK, error.hint)):
        again = ctx.read_leniently(allow_interspersed_args=True)
        with suppress(OmpbindError):
            machine = limit_to_listed(read_machine(again.params.get("topology") or LIVE))
            if isinstance(error, MaskError):
                kinds, text = [kind.name for kind in machine.kinds], error.text
                if name := text if text in kinds else suggest_word(text, kinds):
                    error.hint = f"did you mean --core-kind {name}?"
            keep_working_masks(error, machine, Request(ranks=again.params.get("ranks") or 1))


class Registered(Record):
    """A plan, its claim (None if it could not be registered), and the registry with its messages."""

    plan: Plan
    claim: Claim | None
    registry: Registry


def register_run(machine: Machine, request: Requests, own: LiveRun, *parts: Settings) -> Registered:
    """Plan and register among the other live runs; with --wait, once they have released the CPUs.

    `parts` are the settings of the groups, or of a run without groups. Raises the errors of
    `plan_and_register`, and PlanError after the time limit of --wait.
    """
    settings = parts[0]
    if settings.wait is None:
        with Registry(list_requests(request)[0].sharing, own) as registry:
            return plan_and_register(machine, request, registry)
    is_first = own.placement_index in (None, 0)
    return register_when_free(
        lambda: read_planning_machine(*parts),
        request,
        own,
        limit_s=settings.wait or float("inf"),
        prints=is_first and not settings.quiet,
    )


_FIRST_STEP_S, _LONGEST_STEP_S = 0.05, 1.0  # between two looks at other runs; shorter for runs that exit soon


def register_when_free(
    read: Callable[[], Machine], request: Requests, own: LiveRun, *, limit_s: float, prints: bool
) -> Registered:
    """Plan and register once other live runs leave the CPUs.

    It tries again when other runs or the allowed CPUs have changed; `read` returns the machine. Other users
    see that the run waits. With `prints`, a message names the runs that use the CPUs. Raises PlanError after
    the time limit, and at once the errors that are not due to other runs.
    """
    machine, sharing = read(), list_requests(request)[0].sharing
    plan_or_suggest(machine, request, ())
    wanted = find_possible_cpus(machine, request)
    with Registry(sharing, own) as registry:
        ticket = registry.register_waiting(wanted)
    try:
        give_up_at, step_s = time.monotonic() + limit_s, _FIRST_STEP_S
        tried: tuple[tuple[LiveRun, ...], CpuSet] | None = None
        while True:
            allowed = read_affinity(0)
            with Registry(sharing, own) as registry:
                others = registry.occupied
            if (others, allowed) != tried:
                step_s = _FIRST_STEP_S
                machine, started = read(), own.replace(started=int(time.time()))
                plan_or_suggest(machine, request, ())
                with Registry(sharing, started) as registry:
                    with suppress(PlanError, MaskError):
                        return plan_and_register(machine, request, registry)
                    tried = registry.occupied, allowed  # not `others`: they may be back at the next look
            left_s = give_up_at - time.monotonic()
            blockers = [run for run in others if not run.claimed.isdisjoint(wanted)]
            text = _render_blockers(read_run_info(blockers)) or "another run has just released them"
            if left_s <= 0:
                hint = "wait longer, or name other CPUs with --mask"
                raise PlanError(f"the CPUs are not free after {limit_s:g} s: {text}", hint=hint)
            if prints:
                print_message(f"waiting for CPUs: {text}")
                prints = False
            time.sleep(min(step_s, left_s))
            step_s = min(2 * step_s, _LONGEST_STEP_S)
    finally:
        if ticket:
            ticket.release()


def _render_blockers(infos: Sequence[RunInfo]) -> str:
    """Return which runs use CPUs, or wait for them; ranks of one job are named once.

    Example: "run serve (pid 4711, user alice) uses CPUs 0-3; run job (pid 4712, user bob) waits for CPUs 0-7"
    """
    jobs = list({(info.run.run_id, info.user): info for info in reversed(infos)}.values())[::-1]
    texts = []
    for run, user in ((info.run, info.user) for info in jobs[:NAMED_RUNS]):
        what = f"waits for {named('CPU', run.wanted)}" if run.wanted else f"uses {named('CPU', run.claimed)}"
        texts.append(f"run {run.run_id} (pid {run.pid}, user {user}) {what}")
    more = [f"{len(jobs) - NAMED_RUNS} more"] if len(jobs) > NAMED_RUNS else []
    return "; ".join(texts + more)


_TRIES = 8  # how often a run plans at most, because other runs have registered meanwhile


def plan_and_register(machine: Machine, request: Requests, registry: Registry) -> Registered:
    """Make a plan for this machine and register it, again while runs that start meanwhile change it.

    Raises the errors of `make_local_plan`, and ClaimError as `Registry`.
    """
    request = change_requests(request, sharing=registry.sharing)
    plan = make_local_plan(machine, request, registry.occupied)
    claim = None
    for _ in range(_TRIES):
        claim = registry.register(plan)
        if claim is None or not registry.find_new_runs(claim):
            break
        before, plan = plan, make_local_plan(machine, request, registry.occupied)
        if plan.placements == before.placements:  # only the notes differ
            break
        claim.release()
    else:
        claim = registry.register(plan)
    if claim is None and registry.failure:
        effect = "this run is not registered, so other runs may use its CPUs"
        registry.failure = f"{effect}: {registry.failure}"
    return Registered(plan=plan, claim=claim, registry=registry)


def make_local_plan(machine: Machine, request: Requests, occupied: Sequence[LiveRun]) -> Plan:
    """Make a plan for this machine, without memory policies that this process cannot set."""
    for mode in {each.memory for each in list_requests(request)} - {MemoryMode.LOCAL}:
        from ompbind.execution.memory_policy import read_policy_support  # noqa: PLC0415 - door: --memory

        machine = read_policy_support(machine, mode)
    return plan_or_suggest(machine, request, occupied)


def read_other_runs(machine: Machine, request: Requests, *, quiet: bool = False) -> tuple[LiveRun, ...]:
    """Read the other live runs for a plan that is only shown; print why they could not be read."""
    occupied, failure = try_read_occupied(machine, list_requests(request)[0])
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
    ranks = [run for run in registry.sibling_runs if run.configuration != digest]
    effect = "have read other configuration files: start all ranks in one directory"
    if not ranks:
        ranks = [run for run in registry.sibling_runs if run.division != division]
        effect = "have divided the CPUs in another way: give all ranks the same options"
    if ranks:
        pids = ", ".join(str(run.pid) for run in ranks[:NAMED_RUNS])
        print_message(f"warning: other ranks of this job (pid {pids}) {effect}, or plans may overlap")


def print_registry_failure(failure: str, *, verbose: bool = False) -> None:
    """Print why claims failed: with `verbose`, and as a warning if the user named their directory."""
    hint = f"{DIRECTORY_VARIABLE} must name a directory made with 'mkdir -m 1777'"
    if failure and os.environ.get(DIRECTORY_VARIABLE):
        print_message(f"warning: {failure} ({hint})")
    elif failure and verbose:
        print_message(failure)


def print_warnings(plan: Plan, spec: RunSpec | None = None, codes: Sequence[str] = ()) -> None:
    """Print the notes of a plan that a user should read before ranks start; with codes, only these.

    With what all ranks share, the inherited variables that are changed or cleared for them are printed too.
    """
    for note in plan.all_notes:
        if note.warning and (not codes or note.code in codes):
            print_message(f"warning: {note.text}")
    if spec is not None:
        print_changed_variables(plan, spec)


def print_changed_variables(plan: Plan, spec: RunSpec, index: int = 0, rank: int = 0) -> None:
    """Print which inherited variables are changed or cleared for ranks, or for one with a placement index."""
    of_which = f"inherited variables {f'of rank {rank} ' if rank else ''}that conflict with the plan"
    parts: dict[str, list[str]] = {"cleared": [], "replaced": []}
    for name, after in find_changed(plan, spec, index).items():
        now = "" if after is None else f" (now {after})"
        parts["replaced" if now else "cleared"].append(f"{name}={spec.base[name]}{now}")
    if text := "; ".join(f"{what} {', '.join(changed)}" for what, changed in parts.items() if changed):
        print_message(f"{of_which}: {text} (--keep-env keeps them)")


def warn_about_launcher(plan: Plan | None, nodes: JobNodes | None, verb: str = "run") -> None:
    """Warn if a launcher has started a verb several times, or `run` not at all in a job of several nodes.

    Only the first copy prints it. Copies that the launcher has bound may each start the several ranks of the
    plan on their own CPUs.
    """
    from ompbind.launchers import allocation, find, launchers  # noqa: PLC0415 - door: launchers

    if nodes and not find.is_task(os.environ, find.read_ancestors()):
        print_message(
            f"warning: this {nodes.system} job has {nodes.count} nodes ({nodes.source}), but 'ompbind run'"
            f" starts ranks only on this machine, {os.uname().nodename} (to use all nodes, write"
            f" '{nodes.start} ompbind exec -- COMMAND')"
        )
    rank = find.find_copies(os.environ, find.read_ancestors())
    if rank is None or rank.identity.local_rank:
        return
    if plan and len(plan.placements) > 1:
        masks = allocation.read_task_masks(os.environ, rank.launcher)
        cpus = find.read_launcher_cpus(rank.starter)
        if len(allocation.find_binding(rank.identity, plan.machine.allowed, masks, cpus).sharers) == 1:
            return
    use = f"ompbind exec' instead of 'ompbind {verb}"
    if unbound := launchers.render_unbound(rank.launcher, os.environ):
        use = "ompbind bench -- " * (verb == "bench")
        use += f"{unbound} -n {rank.identity.size} ompbind exec -- COMMAND"
    print_message(
        f"warning: {rank.launcher} has started {rank.identity.local_size} copies of 'ompbind {verb}' on this"
        f" machine, and each starts ranks of its own, numbered from 0 (use '{use}':"
        " then each copy is one rank of the job)"
    )
