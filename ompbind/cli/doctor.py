"""`ompbind doctor`: what on this machine or in this environment would defeat a binding."""

import os
import sys
from collections.abc import Mapping

import click

from ompbind.cli.click_base import Verb, format_option
from ompbind.cli.planning_options import CONSUMED, complete_files
from ompbind.cpuset import CpuSet
from ompbind.doctor.facts import HostFacts
from ompbind.errors import MachineError, RequestError
from ompbind.machine.sources.table import read_machine
from ompbind.planning.occupancy import LiveRun, find_others
from ompbind.programs.workload import Workload
from ompbind.registry.claims import find_folder, make_claimant, read_live_runs
from ompbind.severity import Severity

EXAMPLES = (
    ("This machine and this environment", "ompbind doctor"),
    ("What a server would meet here", "ompbind doctor -- python serve.py"),
    ("The same for a program", "ompbind doctor --format json -- python serve.py"),
)


@click.command("doctor", cls=Verb, examples=EXAMPLES, short_help="Look for what would defeat a binding here.")
@format_option("text", "json")
@click.argument("cmd", nargs=-1, metavar="[-- CMD...]", type=click.UNPROCESSED, shell_complete=complete_files)
def doctor(format_: str, cmd: tuple[str, ...]) -> int:
    """Look for what on this machine, or in this environment, would defeat a binding, each with its remedy.

    With a command also at what it would run: its Python, its OpenMP runtimes, and thread pools that no
    variable reaches. The command is not started. The exit code is 1 when a problem is found; notes are for
    reading.
    """
    from ompbind.doctor.table import examine  # late, as reports are: for this verb alone
    from ompbind.report.doctor import render_issues, render_issues_json

    here = read_host_facts(cmd, dict(os.environ))
    issues = examine(here)
    click.echo(render_issues_json(issues, here) if format_ == "json" else render_issues(issues))
    return 1 if any(one.severity is Severity.ERROR for one in issues) else 0


def read_host_facts(cmd: tuple[str, ...], env: Mapping[str, str]) -> HostFacts:
    """Read all that checks look at; an empty `cmd` is no command."""
    from ompbind.doctor.read_command import find_preloadable, read_command

    work = _read_workload(cmd, env)
    command = read_command(cmd, env, work) if cmd else None
    told = HostFacts(env=env, runs=_read_runs(env), command=command, workload=work, options=CONSUMED)
    told = told.replace(preloadable=find_preloadable(work, env))
    try:
        told = told.replace(machine=read_machine())
    except MachineError as error:
        told = told.replace(error=error.message)
    return _with_system(told) if sys.platform.startswith("linux") else told


def _read_workload(cmd: tuple[str, ...], env: Mapping[str, str]) -> Workload:
    """Read what a command would run with what every run preloads; what cannot be preloaded, runs say."""
    from ompbind.doctor.read_command import read_commands_workload
    from ompbind.programs.preload import find_preloads

    work = read_commands_workload(cmd, env)
    names = env.get("OMPBIND_PRELOAD", "").replace(",", " ").split()
    try:
        preload = find_preloads(names, work, env) if names else ()
    except RequestError:
        preload = ()
    return read_commands_workload(cmd, {**env, "LD_PRELOAD": ":".join(preload)}) if preload else work


def _with_system(told: HostFacts) -> HostFacts:
    from ompbind.doctor.read_kernel import read_kernel, read_memory, read_power
    from ompbind.doctor.read_permissions import rebind, try_call
    from ompbind.execution.mempolicy import reset_policy
    from ompbind.machine.sources.filesystem import FolderRoot
    from ompbind.machine.sources.linux.cgroup import read_limits

    root = FolderRoot("/")
    affinity = CpuSet(os.sched_getaffinity(0))
    return told.replace(
        affinity=affinity,
        cpuset=read_limits(root).cpuset,
        may_bind=try_call(rebind),
        may_place_memory=try_call(reset_policy),
        kernel=read_kernel(root),
        power=read_power(root, told.machine.online if told.machine else affinity),
        memory=read_memory(root),
    )


def _read_runs(env: Mapping[str, str]) -> tuple[LiveRun, ...] | None:
    """Read the runs of others; None where they cannot be told."""
    try:
        return find_others(read_live_runs(find_folder(env)), make_claimant(""))
    except OSError:
        return None
