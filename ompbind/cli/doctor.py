"""`ompbind doctor`: what on this machine or in this environment would defeat a binding."""

import os
import sys
from collections.abc import Mapping

import click

from ompbind.cli.options import CONSUMED, complete_files
from ompbind.cli.verb import Verb, format_option
from ompbind.cpuset import CpuSet
from ompbind.errors import MachineError, RequestError
from ompbind.launch.claims import find_folder, make_claimant, read_live_runs
from ompbind.liveruns import LiveRun, find_others
from ompbind.machine.sources import read_machine
from ompbind.surroundings import Surroundings
from ompbind.workload import Workload

EXAMPLES = (
    ("This machine and this environment", "ompbind doctor"),
    ("What a server would meet here", "ompbind doctor -- python serve.py"),
    ("The same for a program", "ompbind doctor --format json -- python serve.py"),
)


@click.command(
    "doctor",
    cls=Verb,
    examples=EXAMPLES,
    context_settings={"allow_interspersed_args": False},
    short_help="Look for what would defeat a binding here.",
)
@format_option("text", "json")
@click.argument("cmd", nargs=-1, metavar="[-- CMD...]", type=click.UNPROCESSED, shell_complete=complete_files)
def doctor(format_: str, cmd: tuple[str, ...]) -> int:
    """Look for what on this machine, or in this environment, would defeat a binding, each with its remedy.

    With a command also at what it would run: its Python, its OpenMP runtimes, and thread pools that no
    variable reaches. The command is not started. The exit code is 1 when a problem is found; notes are for
    reading.
    """
    from ompbind.doctor import examine  # late, as reports are: for this verb alone
    from ompbind.report.doctor import render_findings, render_findings_json

    here = read_surroundings(cmd, dict(os.environ))
    findings = examine(here)
    click.echo(render_findings_json(findings, here) if format_ == "json" else render_findings(findings))
    return 1 if any(one.level == "problem" for one in findings) else 0


def read_surroundings(cmd: tuple[str, ...], env: Mapping[str, str]) -> Surroundings:
    """Read all that checks look at; an empty `cmd` is no command."""
    from ompbind.machine.commands import find_preloadable, read_command

    work = _read_workload(cmd, env)
    told = Surroundings(
        env=env,
        runs=_read_runs(env),
        command=read_command(cmd, env, work) if cmd else None,
        workload=work,
        preloadable=find_preloadable(work, env),
        options=CONSUMED,
    )
    try:
        told = told.replace(machine=read_machine())
    except MachineError as error:
        told = told.replace(error=error.message)
    return _with_system(told) if sys.platform.startswith("linux") else told


def _read_workload(cmd: tuple[str, ...], env: Mapping[str, str]) -> Workload:
    """Read what a command would run with what every run preloads; what cannot be preloaded, runs say."""
    from ompbind.machine.commands import read_commands_workload
    from ompbind.machine.preloads import find_preloads

    work = read_commands_workload(cmd, env)
    names = env.get("OMPBIND_PRELOAD", "").replace(",", " ").split()
    try:
        preload = find_preloads(names, work, env) if names else ()
    except RequestError:
        preload = ()
    return read_commands_workload(cmd, {**env, "LD_PRELOAD": ":".join(preload)}) if preload else work


def _with_system(told: Surroundings) -> Surroundings:
    from ompbind.machine.cgroup import read_limits
    from ompbind.machine.root import FolderRoot
    from ompbind.machine.settings import read_kernel, read_memory, read_power
    from ompbind.observe.permissions import try_calls

    root = FolderRoot("/")
    affinity = CpuSet(os.sched_getaffinity(0))
    return told.replace(
        affinity=affinity,
        cpuset=read_limits(root).cpuset,
        calls=try_calls(),
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
