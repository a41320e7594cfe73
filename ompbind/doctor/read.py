"""Read all facts that the checks of `ompbind doctor` use: this host, kernel and variables, the command."""

import errno
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import escape, glob
from importlib.metadata import distributions
from itertools import chain, islice

import ompbind
from ompbind.commands.rank_variables import OMPBIND_RUN_ID, find_rank
from ompbind.cpuset import CpuSet
from ompbind.doctor.checks_environment import BINDING_PACKAGES
from ompbind.doctor.checks_programs import POOLS
from ompbind.doctor.facts import UNKNOWN, CommandFacts, HostFacts, KernelFacts, Permission
from ompbind.errors import LaunchError, MachineError, RequestError
from ompbind.execution.memory_policy import reset_policy
from ompbind.execution.seccomp import install
from ompbind.execution.spawn import fork_child
from ompbind.inspection.diagnosis import is_relevant
from ompbind.inspection.verdict import CpuUsage, measure_others, read_own_usage
from ompbind.launchers.launchers import LAUNCHERS
from ompbind.machine.read import read_machine
from ompbind.machine.read.linux_topology import CPU
from ompbind.machine.read.root import DirectoryRoot, Root, read_word
from ompbind.planning.other_runs import LiveRun, find_other_runs
from ompbind.planning.request import Hold
from ompbind.procfs.reader import read_cpu_times
from ompbind.programs import libraries
from ompbind.programs.command import Workload, read_workload
from ompbind.programs.elf import read_header
from ompbind.programs.find_command import find_command, find_script_error
from ompbind.programs.libraries import LIBRARY_KINDS, PRELOADABLE, DetectionMethod
from ompbind.programs.preload import find_preloads, read_preload_target
from ompbind.programs.python_packages import find_candidates, find_default_python, find_site_packages
from ompbind.programs.wrappers import is_python
from ompbind.registry.registry import find_claims_directory, make_own_run, read_live_runs
from ompbind.text import clean_name, mask_value, whole_number

_LOAD_S = 0.5  # seconds in which the load of other processes is measured at least
_IDLE_SHARE = 0.1  # a CPU is idle if it was busy for at most this part of the time


def read_host(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    options: tuple[str, ...],
    unknown_options: tuple[tuple[str, str], ...],
    files: Iterable[str] = (),
) -> HostFacts:
    """Read all facts that the checks use, and measure the load meanwhile; an empty `argv` is no command.

    `options` and `unknown_options` are as in `HostFacts`, `files` the configuration files.
    """
    before = read_own_usage(read_cpu_times())
    work = read_commands_workload(argv, env)
    if names := env.get("OMPBIND_PRELOAD", "").replace(",", " ").split():
        try:
            preload = ":".join(find_preloads(names, work, env))
            work = read_commands_workload(argv, {**env, "LD_PRELOAD": preload})
        except RequestError:
            pass  # `run` reports wrong names
    host = HostFacts(
        env=env,
        command=read_command_facts(argv, env, work) if argv else None,
        workload=work,
        preloadable=find_preloadable(work, env),
        options=options,
        unknown_options=unknown_options,
        report=tuple(read_report_facts(env, files)),
    )
    new = make_own_run("")
    try:
        live = read_live_runs(find_claims_directory(env))
        own = (run for run in live if run.uid == new.uid)
        host = host.replace(runs=find_other_runs(live, new), enclosing=find_enclosing(own, env))
    except OSError:
        pass  # the runs stay unknown
    try:
        host = host.replace(machine=read_machine(devices=True))
    except MachineError as error:
        host = host.replace(error=error.message)
    return _add_system_facts(host, before) if sys.platform.startswith("linux") else host


def read_report_facts(env: Mapping[str, str], files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield what a report of a fault needs, as (subject, text); what cannot be found is left out."""
    archive = getattr(getattr(ompbind.__spec__, "loader", None), "archive", "")
    yield "ompbind", f"{ompbind.__version__}, in {archive or os.path.dirname(ompbind.__file__)}"
    yield "Python", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    # in the zipapp, the packages that ompbind depends on have no metadata
    packages = (
        found for name in ("click", "psutil", "rich") for found in islice(distributions(name=name), 1)
    )
    cgroups = 2 if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else 1
    linked = libraries.linker_directories(env)
    found = find_candidates(env)
    runtimes = (name if "/" in name else libraries.find_library(name, None, linked) for name in found)
    for subject, texts in (
        ("packages", (f"{found.name} {found.version}" for found in packages)),
        ("system", (platform.platform(), f"cgroups of version {cgroups}")),
        ("launcher", (name for launcher in LAUNCHERS for name in launcher.needed if name in env)),
        (
            "variables set",
            (f"{name}={mask_value(name, env[name])}" for name in sorted(env) if is_relevant(name)),
        ),
        ("configuration", files),
        ("installed runtimes", filter(None, runtimes)),
    ):
        if text := ", ".join(dict.fromkeys(texts)):
            yield subject, text


def find_enclosing(runs: Iterable[LiveRun], env: Mapping[str, str]) -> tuple[int, CpuSet] | None:
    """Return the rank that variables name, if it belongs to one of these runs.

    Variables alone are no proof: `ompbind plan --format sh` prints them, and a run may have exited.
    """
    name, rank = clean_name(env.get(OMPBIND_RUN_ID, "")), find_rank(env)
    ranks = (found for run in runs if run.run_id == name for found in run.ranks)
    return next((found for found in ranks if found[0] == rank), None)


def _add_system_facts(host: HostFacts, before: CpuUsage) -> HostFacts:
    root = DirectoryRoot("/")
    time.sleep(max(0.0, before.at_s + _LOAD_S - time.monotonic()))
    usage = read_own_usage(read_cpu_times())
    allowed = host.machine.allowed if host.machine else CpuSet(os.sched_getaffinity(0))
    others = measure_others(before, usage, allowed)
    most_s = _IDLE_SHARE * others.span_s
    idle = CpuSet(cpu for cpu in others.cpus if usage.used_since(before, CpuSet((cpu,))) <= most_s)
    return host.replace(
        others=others,
        idle=idle,
        may_bind=try_call(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
        may_place_memory=try_call(reset_policy),
        hold=try_hold(root),
        kernel=read_kernel(root),
    )


_PACKAGES = (
    *("torch", "vllm"),
    *(name.removeprefix("import ") for _, names, *_ in POOLS for name in names if name.startswith("import ")),
    *(name for name, *_ in BINDING_PACKAGES),
)
"""Packages with thread pools, with expected preloads, or that bind by default."""

_SERIES = re.compile(r"(?:python|pypy)([0-9]+)\.([0-9]+)")
_IN_SITE = re.compile(r"/python([0-9]+)\.([0-9]+)/")


def read_commands_workload(argv: Sequence[str], env: Mapping[str, str]) -> Workload:
    """Read what a command would run; without a command only the preloads of the default Python."""
    if argv:
        return read_workload(argv, env)
    work = read_workload((find_default_python(env),), env)
    loaded = tuple(found for found in work.libraries if found.method is DetectionMethod.PRELOADED)
    return Workload(libraries=loaded, preload_warnings=work.preload_warnings)


def read_command_facts(argv: tuple[str, ...], env: Mapping[str, str], work: Workload) -> CommandFacts:
    """Read the facts about a command with a given workload; if it cannot run, `error` is the reason."""
    try:
        path = find_command(argv[0], env)
    except LaunchError as error:
        return CommandFacts(argv=argv, error=error.message, hint=error.hint)
    if problem := find_script_error(path):
        return CommandFacts(argv=argv, error=problem.message, hint=problem.hint)
    elf = read_header(work.program)
    sites = find_site_packages(work.python, env) if work.python else []
    file = os.path.basename(os.path.realpath(work.python))
    series = _SERIES.match(file) or _IN_SITE.search(f"{work.site_packages}/") if work.python else None
    return CommandFacts(
        argv=argv,
        arch=elf.architecture if elf else "",
        python=(int(series[1]), int(series[2])) if series else None,
        isolated=bool(work.python) and is_python(argv[0]) and _is_isolated(argv),
        cpp=bool(elf and not work.python and any(name.startswith("libstdc++.so") for name in elf.needed)),
        packages=dict(_find_packages(sites)),
    )


def _find_packages(sites: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name in _PACKAGES:
        site = next((site for site in sites if os.path.isdir(f"{site}/{name}")), None)
        if site:
            number = re.compile(rf"/{name}-([0-9]+)\.([0-9]+)[^/]*$")
            found = next(filter(None, map(number.search, glob(f"{escape(site)}/{name}-*.dist-info"))), None)
            yield name, (int(found[1]), int(found[2])) if found else ()


def _is_isolated(argv: Sequence[str]) -> bool:
    """Return whether the options of Python before the script make it ignore variables: -E or -I."""
    for word in argv[1:]:
        if not word.startswith("-") or word in ("-c", "-m", "-"):
            return False
        letters = word[1:].partition("W")[0].partition("X")[0]  # their value follows
        if not word.startswith("--") and {"E", "I"} & set(letters):
            return True
    return False


def find_preloadable(work: Workload, env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return (name, path) of the libraries that may make programs faster; the path is "" if one is not found.

    Runtimes that do not exist for the architecture of the program are left out.
    """
    like, directories = read_preload_target(work, env)
    found = []
    for name in PRELOADABLE:
        family = LIBRARY_KINDS[name].family
        if not family or (family.facts.preload_benefit and (not like or family.runs_on(like.architecture))):
            found.append((name, libraries.find_library_of_kind(name, like, directories) or ""))
    return tuple(found)


# Parts of cgroup paths, and files that exist only in containers, each with the container software.
_CONTAINERS = (("kubepods", "Kubernetes"), ("docker", "Docker"), ("libpod", "podman"), ("lxc", "LXC"))
_FILES = (("run/.containerenv", "podman"), (".dockerenv", "Docker"))

_VIRTUAL_MAKERS = ("QEMU", "Xen", "VMware, Inc.", "Parallels Software International Inc.")
"""Makers in DMI tables who build no hardware: other architectures than x86 have no flag."""


def read_kernel(root: Root) -> KernelFacts:
    """Read the release of the kernel and the settings that matter to ranks."""
    groups = root.read("proc/self/cgroup") or ""
    lines = (root.read("proc/cpuinfo") or "").splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    maker = read_word(root, "sys/class/dmi/id/sys_vendor")
    is_virtual = "hypervisor" in flags or maker in _VIRTUAL_MAKERS  # x86 CPUs have a flag, Xen a file
    by_file = (kind for path, kind in _FILES if root.read(path) is not None)
    return KernelFacts(
        release=read_word(root, "proc/sys/kernel/osrelease"),
        container=next(chain((kind for part, kind in _CONTAINERS if part in groups), by_file), ""),
        hypervisor=(maker or "a hypervisor") if is_virtual else read_word(root, "sys/hypervisor/type"),
        smt=read_word(root, f"{CPU}/smt/control"),
        numa_balancing=whole_number(read_word(root, "proc/sys/kernel/numa_balancing")),
    )


def _ask_child(act: Callable[[], bytes]) -> bytes | None:
    """Return what `act` returns in a child process, b"" if a sandbox kills it; None if it cannot start."""
    try:
        pid, pipe = fork_child(act)
    except OSError:
        return None
    with open(pipe, "rb") as stream:
        found = stream.read()
    os.waitpid(pid, 0)
    return found


def try_hold(root: Root) -> str:
    """Return whether --hold works, and why not, as a child process finds that installs its filter."""

    def install_filter() -> bytes:
        try:
            install(Hold.ANSWERED)
        except LaunchError as error:
            return f"does not work: {error.message.removeprefix('--hold: ')} ({error.hint})".encode()
        is_limited = (whole_number(read_word(root, "proc/sys/kernel/yama/ptrace_scope")) or 0) > 1
        return b"is permitted" + b"; without CAP_SYS_PTRACE, threads are not bound within ranks" * is_limited

    found = _ask_child(install_filter)
    return UNKNOWN if found is None else found.decode() or "does not work: seccomp is refused here"


def try_call(call: Callable[[], int | None]) -> Permission:
    """Make a call in a child process, which reports the number of an error; a sandbox may also kill it."""
    found = _ask_child(lambda: b"%d" % (call() or 0))
    number = errno.EINVAL if found is None else int(found or errno.EPERM)
    known = {0: Permission.GRANTED, errno.ENOSYS: Permission.ABSENT, errno.EPERM: Permission.REFUSED}
    return (known | {errno.EACCES: Permission.REFUSED}).get(number, Permission.UNKNOWN)
