"""`ompbind exec --task-prolog`: bind a task of Slurm from slurmd's TaskProlog, before the task starts."""

import os
from collections.abc import Mapping

from ompbind.cli.console import print_message, write_stdout
from ompbind.cli.exec_identity import prepare_rank
from ompbind.cli.plan_messages import print_changed_variables, print_warnings
from ompbind.cli.register import plan_or_suggest, read_other_runs
from ompbind.cli.settings import Settings
from ompbind.cpuset import CpuSet
from ompbind.errors import OmpbindError, RequestError
from ompbind.execution.spawn import set_affinity
from ompbind.launchers.ancestors import read_ancestors
from ompbind.launchers.find import find_launcher
from ompbind.launchers.launchers import SLURM
from ompbind.machine.read.root import DirectoryRoot, whole_number
from ompbind.planning.rank_command import find_changed, make_command

TASK_PID = "SLURM_TASK_PID"
"""The variable in which Slurm names the process of the task."""


def run_task_prolog(settings: Settings) -> int:
    """Bind the task and print the changes of its environment; return 0 after an error too.

    Raises the error with --strict.
    """
    try:
        _bind_task(settings)
    except (OmpbindError, OSError) as error:
        if settings.request.strict:
            raise
        hint = f" ({error.hint})" if isinstance(error, OmpbindError) and error.hint else ""
        print_message(f"warning: this task is not bound: {error}{hint}")
    return 0


def _bind_task(settings: Settings) -> None:
    pid = whole_number(os.environ.get(TASK_PID))
    if not pid:
        hint = "write it into the script of TaskProlog in slurm.conf"
        raise RequestError(f"--task-prolog: {TASK_PID} is not set", hint=hint)
    rank = find_launcher(os.environ, read_ancestors(DirectoryRoot("/"), pid))
    if rank is None or rank.launcher != SLURM.name:  # the script of a batch job, for example
        return
    set_affinity(CpuSet(os.sched_getaffinity(pid)))
    identity, machine, request, spec = prepare_rank(settings, rank, rank.run_id)
    others = read_other_runs(machine, request, quiet=settings.quiet)
    plan = plan_or_suggest(machine, request, others)
    command = make_command(plan, identity, spec)
    if identity.local_rank == 0 and not settings.quiet:
        print_warnings(plan)
        print_changed_variables(spec.base, find_changed(plan, spec))
        if command.memory is not None:
            print_message("warning: --memory has no effect with --task-prolog")
    if command.cpus is not None:
        set_affinity(command.cpus, pid)
    write_stdout(render_changes(spec.base, command.env))


def render_changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the lines with which a TaskProlog changes the environment of its task.

    Slurm takes values as they are, without quotes. Values of several lines are left out, with a message.
    """
    lines = [f"unset {name}" for name in before if name not in after]
    for name, value in after.items():
        if before.get(name) == value:
            continue
        if "\n" in value:
            print_message(f"warning: {name} has several lines, so --task-prolog cannot set it")
        else:
            lines.append(f"export {name}={value}")
    return "\n".join(lines)
