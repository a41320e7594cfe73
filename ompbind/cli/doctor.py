"""`ompbind doctor`: what on this machine or in this environment would break a binding."""

import os
import sys
from collections.abc import Mapping

import click

from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.options import find_unknown_variables, find_variables
from ompbind.cli.settings import make_settings
from ompbind.cli.verb import Verb
from ompbind.cpuset import CpuSet
from ompbind.doctor.facts import HostFacts
from ompbind.doctor.read_command import find_preloadable, read_command, read_commands_workload
from ompbind.doctor.read_kernel import read_frequency, read_kernel, read_memory, rebind, try_call
from ompbind.doctor.read_runs import read_runs
from ompbind.doctor.table import run_checks
from ompbind.errors import MachineError, RequestError
from ompbind.execution.mempolicy import reset_policy
from ompbind.machine.sources.linux.cgroup import read_limits
from ompbind.machine.sources.reading import read_machine
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.programs.command import Workload
from ompbind.programs.preload import find_preloads
from ompbind.record import Record
from ompbind.report.doctor import render_issues, render_issues_json
from ompbind.text import Severity

EXAMPLES = (
    ("This machine and this environment", "ompbind doctor"),
    ("The same, and what a server would run", "ompbind doctor -- python serve.py"),
    ("The same, as JSON", "ompbind doctor --format json -- python serve.py"),
)


HELP = """Find what on this machine or in this environment would break a binding, each with its remedy.

With a command, its Python, its OpenMP runtimes and its thread pools are checked too; the command is not
started. The exit code is 1 if there is an error, not for notes.
"""


class DoctorSettings(Record):
    """The fields are the options of the same names, and the command."""

    format: str
    words: tuple[str, ...]


def doctor(ctx: click.Context) -> int:
    """Find what on this machine or in this environment would break a binding, each with its remedy."""
    settings = make_settings(DoctorSettings, ctx.params)
    host = read_host_facts(settings.words, dict(os.environ))
    issues = run_checks(host)
    is_json = settings.format == "json"
    write_stdout(render_issues_json(issues, host) if is_json else render_issues(issues, read_screen()))
    return 1 if any(issue.severity is Severity.ERROR for issue in issues) else 0


def read_host_facts(cmd: tuple[str, ...], env: Mapping[str, str]) -> HostFacts:
    """Read all facts that the checks need; an empty `cmd` is no command."""
    work = _read_workload(cmd, env)
    command = read_command(cmd, env, work) if cmd else None
    host = read_runs(env).replace(command=command, workload=work, options=find_variables())
    host = host.replace(preloadable=find_preloadable(work, env))
    host = host.replace(unknown_options=tuple(find_unknown_variables(env)))
    try:
        host = host.replace(machine=read_machine(devices=True))
    except MachineError as error:
        host = host.replace(error=error.message)
    return _add_system_facts(host) if sys.platform.startswith("linux") else host


def _read_workload(cmd: tuple[str, ...], env: Mapping[str, str]) -> Workload:
    """Read what a command would run with the preloads of OMPBIND_PRELOAD; `run` reports wrong names."""
    work = read_commands_workload(cmd, env)
    names = env.get("OMPBIND_PRELOAD", "").replace(",", " ").split()
    try:
        preload = find_preloads(names, work, env) if names else ()
    except RequestError:
        preload = ()
    return read_commands_workload(cmd, {**env, "LD_PRELOAD": ":".join(preload)}) if preload else work


def _add_system_facts(host: HostFacts) -> HostFacts:
    """Return the facts together with facts about the kernel; Linux only."""
    root = DirectoryRoot("/")
    affinity = CpuSet(os.sched_getaffinity(0))
    return host.replace(
        affinity=affinity,
        cpuset=read_limits(root).cpuset,
        may_bind=try_call(rebind),
        may_place_memory=try_call(reset_policy),
        kernel=read_kernel(root),
        frequency=read_frequency(root, host.machine.online if host.machine else affinity),
        memory=read_memory(root),
    )


VERB = Verb(
    "doctor",
    doctor,
    help=HELP,
    summary="Find what would break a binding on this machine.",
    examples=EXAMPLES,
    words="optional command",
)
