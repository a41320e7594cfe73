"""`ompbind exec`: become one rank of a launcher's job; no process of ompbind remains."""

import os

from ompbind.cli import register
from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.exec_identity import find_rank, prepare_rank
from ompbind.cli.option import VerbContext
from ompbind.cli.register import Registered
from ompbind.cli.settings import Settings, make_planning_settings
from ompbind.cli.verb import Verb
from ompbind.commands.environment import RankIdentity, RunSpec, find_changed
from ompbind.commands.rank_command import make_command, mask_secrets
from ompbind.cpuset import CpuSet
from ompbind.errors import OmpbindError, RequestError
from ompbind.execution.spawn import exec_command, set_affinity
from ompbind.launchers.find import find_daemon, find_launcher, read_ancestors, render_launcher_names
from ompbind.launchers.launchers import LAUNCHERS, SLURM
from ompbind.planning.plan import Plan
from ompbind.registry.registry import make_own_run
from ompbind.text import whole_number

OF_BOUND_RANK = ("oversubscribed", "device-distance", "device-far")
"""The codes of the notes about a single rank, which each rank prints that its launcher has bound."""

TASK_PID = "SLURM_TASK_PID"  # the variable in which Slurm names the process of the task

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


def _prints_warnings(ctx: VerbContext) -> bool:
    rank = find_rank(make_planning_settings(ctx))  # the messages are the same for all ranks on this machine
    return rank is None or rank.identity.local_rank == 0


def exec_rank(ctx: VerbContext) -> int:
    """Become one rank of a launcher's job; return 0 after a dry run."""
    settings = make_planning_settings(ctx)
    if settings.task_prolog:
        try:
            _bind_task(settings)
        except (OmpbindError, OSError) as error:
            if settings.request.strict:
                raise
            hint = f" ({error.hint})" if isinstance(error, OmpbindError) and error.hint else ""
            print_message(f"warning: this task is not bound: {error}{hint}")
        return 0
    settings.check_topology("a rank")
    rank = find_rank(settings)
    identity, machine, request, spec = prepare_rank(settings, rank, f"exec-{os.getpid()}")
    wanted = request if rank else register.prefer_free_cores(request, machine)
    if settings.dry_run:
        from ompbind.report.plan import render_plan  # noqa: PLC0415 - door: --dry-run

        others = register.read_other_runs(machine, wanted, quiet=settings.quiet)
        plan = register.plan_or_suggest(machine, wanted, others)
        shown = _render_rank(plan, identity, spec)
        write_stdout(f"{render_plan(plan, read_screen())}\n\n{shown}" if identity.local_rank == 0 else shown)
        return 0
    own = make_own_run(spec.run_id)
    if rank:
        own = own.replace(placement_index=identity.placement_index, rank=identity.rank)
    found = register.register_run(machine, wanted, own, settings)
    if not settings.quiet:
        _print_before_start(found, identity, spec, verbose=settings.verbose)
    try:
        command = make_command(found.plan, identity, spec)
        if found.claim:
            found.claim.keep_across_exec()
        exec_command(command, hold=settings.request.hold is not None)
    finally:
        if found.claim:
            found.claim.release()


def _print_before_start(found: Registered, identity: RankIdentity, spec: RunSpec, *, verbose: bool) -> None:
    plan, registry = found.plan, found.registry
    if identity.local_rank == 0:
        register.print_warnings(plan, spec)
        register.print_registry_messages(registry, verbose=verbose)
    else:
        if plan.request.outside_ranks:  # the first rank does not know the CPUs and devices of a bound rank
            register.print_warnings(plan, codes=OF_BOUND_RANK)
        if find_changed(plan, spec, identity.placement_index) != find_changed(plan, spec):
            register.print_changed_variables(plan, spec, identity.placement_index, identity.rank)
    if registry.sibling_runs:
        register.print_differing_ranks(plan, registry)
    for line in _render_rank(plan, identity, spec).splitlines() if verbose else ():
        print_message(line)


def _render_rank(plan: Plan, identity: RankIdentity, spec: RunSpec) -> str:
    from ompbind.report.plan import render_command, render_rank  # noqa: PLC0415 - door: texts of a plan

    shown = mask_secrets(spec)
    filled = render_command(make_command(plan, identity, shown), shown)
    return "\n".join(filter(None, (render_rank(plan, identity, os.uname().nodename), filled)))


def _bind_task(settings: Settings) -> None:
    """Bind the task of the TaskProlog and print the changes of its environment.

    The task is the process that will become the command: still a slurmstepd, which waits for its prolog.
    """
    text, pid = os.environ.get(TASK_PID), whole_number(os.environ.get(TASK_PID)) or 0
    ancestors = [*read_ancestors()]
    daemon = find_daemon(ancestors, SLURM.daemons)  # None if /proc hides the processes of others
    if pid not in [ancestor.pid for ancestor in ([daemon] if daemon else ancestors)]:
        why = f"{text[:20]!r} is not the task of this prolog" if text else "is not set"
        hint = "write it into the script of TaskProlog in slurm.conf"
        raise RequestError(f"--task-prolog: {TASK_PID} {why}", hint=hint)
    rank = find_launcher(os.environ, read_ancestors(pid=pid))
    if rank is None or rank.launcher != SLURM.name:  # the script of a batch job, for example
        return
    set_affinity(CpuSet(os.sched_getaffinity(pid)))
    identity, machine, request, spec = prepare_rank(settings, rank, rank.run_id)
    others = register.read_other_runs(machine, request, quiet=settings.quiet)
    plan = register.plan_or_suggest(machine, request, others)
    command = make_command(plan, identity, spec)
    if identity.local_rank == 0 and not settings.quiet:
        register.print_warnings(plan, spec)
        if command.memory is not None:
            print_message("warning: --memory has no effect with --task-prolog")
    if command.cpus is not None:
        set_affinity(command.cpus, pid)
    lines = [f"unset {name}" for name in spec.base if name not in command.env]
    for name, value in command.env.items():  # Slurm takes values as they are, without quotes
        if spec.base.get(name) != value and "\n" in value:
            print_message(f"warning: {name} has several lines, so --task-prolog cannot set it")
        elif spec.base.get(name) != value:
            lines.append(f"export {name}={value}")
    write_stdout("\n".join(lines))


VERB = Verb(
    "exec",
    exec_rank,
    help=HELP,
    summary="Become one rank of a job that Slurm, MPI or another launcher started.",
    page="mpi-slurm",
    examples=EXAMPLES,
    details=DETAILS,
    words="command",
    prints_warnings=_prints_warnings,
)
