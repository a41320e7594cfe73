"""Read all facts that the checks of `ompbind doctor` use: this host, its environment, and the command."""

import os
import sys
import time
from collections.abc import Iterable, Mapping

from ompbind.cpuset import CpuSet
from ompbind.doctor.facts import EnclosingRank, HostFacts
from ompbind.doctor.read_command import find_preloadable, read_command_facts, read_commands_workload
from ompbind.doctor.read_kernel import read_frequency, read_kernel, read_memory, rebind, try_call
from ompbind.errors import MachineError, RequestError
from ompbind.execution.mempolicy import reset_policy
from ompbind.inspection.others_load import CpuUsage, measure_others, read_own_usage
from ompbind.machine.sources.linux.cgroup import read_limits
from ompbind.machine.sources.reading import read_machine
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.planning.other_runs import LiveRun, find_other_runs
from ompbind.planning.rank_variables import OMPBIND_RUN_ID, find_rank
from ompbind.procfs.reader import read_cpu_times
from ompbind.programs.command import Workload
from ompbind.programs.preload import find_preloads
from ompbind.registry.registry import find_claims_directory, make_run_identity, read_live_runs
from ompbind.text import clean_name

_LOAD_S = 0.5
"""Seconds in which the load of other processes is measured."""

_IDLE_SHARE = 0.1
"""A CPU is idle if it was busy for at most this part of the time."""


def read_host(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    options: tuple[str, ...],
    unknown_options: tuple[tuple[str, str], ...],
) -> HostFacts:
    """Read all facts that the checks use; an empty `argv` is no command.

    `options` and `unknown_options` are the variables that are, or look like, options of ompbind. The load of
    other processes is measured meanwhile, for at least _LOAD_S.
    """
    before = read_own_usage(read_cpu_times())
    work = _read_preloaded_workload(argv, env)
    host = HostFacts(
        env=env,
        command=read_command_facts(argv, env, work) if argv else None,
        workload=work,
        preloadable=find_preloadable(work, env),
        options=options,
        unknown_options=unknown_options,
    )
    host = _add_live_runs(host)
    try:
        host = host.replace(machine=read_machine(devices=True))
    except MachineError as error:
        host = host.replace(error=error.message)
    return _add_system_facts(host, before) if sys.platform.startswith("linux") else host


def _read_preloaded_workload(argv: tuple[str, ...], env: Mapping[str, str]) -> Workload:
    """Read what a command would run with the preloads of OMPBIND_PRELOAD; `run` reports wrong names."""
    work = read_commands_workload(argv, env)
    names = env.get("OMPBIND_PRELOAD", "").replace(",", " ").split()
    try:
        preload = find_preloads(names, work, env) if names else ()
    except RequestError:
        preload = ()
    return read_commands_workload(argv, {**env, "LD_PRELOAD": ":".join(preload)}) if preload else work


def _add_live_runs(host: HostFacts) -> HostFacts:
    """Return the facts together with the other live runs and the rank to which this process belongs."""
    identity = make_run_identity("")
    try:
        live = read_live_runs(find_claims_directory(host.env))
    except OSError:
        return host
    own = (run for run in live if run.uid == identity.uid)
    return host.replace(runs=find_other_runs(live, identity), enclosing=find_enclosing(own, host.env))


def find_enclosing(runs: Iterable[LiveRun], env: Mapping[str, str]) -> EnclosingRank | None:
    """Return the rank that variables name, if it belongs to one of these runs.

    Variables alone are no proof: `ompbind plan --format sh` prints them, and a run may have exited.
    """
    name, rank = clean_name(env.get(OMPBIND_RUN_ID, "")), find_rank(env)
    ranks = (found for run in runs if run.run_id == name for found in run.ranks)
    return next((EnclosingRank(rank=number, cpus=cpus) for number, cpus in ranks if number == rank), None)


def _add_system_facts(host: HostFacts, before: CpuUsage) -> HostFacts:
    """Return the facts together with those about the kernel, its permissions and the load; Linux only."""
    root = DirectoryRoot("/")
    affinity = CpuSet(os.sched_getaffinity(0))
    time.sleep(max(0.0, before.at_s + _LOAD_S - time.monotonic()))
    usage, allowed = read_own_usage(read_cpu_times()), host.machine.allowed if host.machine else affinity
    others = measure_others(before, usage, allowed)
    most_s = _IDLE_SHARE * others.span_s
    idle = CpuSet(cpu for cpu in others.cpus if usage.used_since(before, CpuSet((cpu,))) <= most_s)
    return host.replace(
        others=others,
        idle=idle,
        affinity=affinity,
        cpuset=read_limits(root).cpuset,
        may_bind=try_call(rebind),
        may_place_memory=try_call(reset_policy),
        kernel=read_kernel(root),
        frequency=read_frequency(root, host.machine.online if host.machine else affinity),
        memory=read_memory(root),
    )
