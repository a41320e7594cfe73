"""Checks of `ompbind doctor`: what a command would run, which thread pools that has, and what it lacks."""

from collections.abc import Iterator

from ompbind.doctor.facts import CommandFacts, HostFacts
from ompbind.doctor.issue import HostIssue, error, note, ok
from ompbind.openmp.runtimes import OmpRuntime, find_ending
from ompbind.programs.library_catalog import KINDS, PACKAGES
from ompbind.programs.workload import Found, How

_ALLOCATION = (
    "operations of torch that make tensors of 64 MiB took 2-4 times as long with the allocator"
    " of glibc as with tcmalloc"
)
_WANTED = {"tcmalloc": _ALLOCATION, OmpRuntime.INTEL.facts.library: OmpRuntime.INTEL.facts.worth_preloading}
"""The libraries that vLLM's CPU workers want, and what becomes faster with them."""


def check_command(here: HostFacts) -> Iterator[HostIssue]:
    """Tell what a command would run, or why it would not."""
    command, work = here.command, here.workload
    if command is None:
        return
    name, arch = command.argv[0], here.machine.arch if here.machine else ""
    if command.error:
        yield error("command", command.error, "no rank can be started", command.hint or "give its path")
    elif not work.program:
        yield ok("command", f"{name}: what it runs in the end its file does not tell")
    elif command.arch and arch and not _runs_on(command.arch, arch):
        why = f"this machine is {arch}: it runs only where an emulator is registered"
        yield note("command", f"{work.program} is for {command.arch}", why, f"one that is built for {arch}")
    else:
        yield ok("command", f"runs {work.program}{_python(command, work.site)}")


def _runs_on(arch: str, machine: str) -> bool:
    """Tell whether programs for one architecture run on another; those of 32 bits mostly do."""
    return arch == machine or (machine, arch) in (
        ("x86_64", "i386"), ("x86_64", "x32"), ("aarch64", "arm"), ("ppc64", "ppc"), ("armv7l", "arm"),
        ("i686", "i386"), ("i586", "i386"), ("armv8l", "arm"), ("mips64", "mips"),
    ) or machine in ("unknown", "")  # fmt: skip


def _python(command: CommandFacts, site: str) -> str:
    if command.python is None:
        return ""
    major, minor = command.python
    isolated = ", isolated" if command.isolated else ""
    return f" (Python {major}.{minor}{isolated}; packages in {site or 'none'})"


def check_runtimes(here: HostFacts) -> Iterator[HostIssue]:
    """Look for OpenMP runtimes that get in each other's way."""
    runtimes = list(here.workload.runtimes())
    if not runtimes:
        if here.workload.static:
            yield ok("OpenMP runtimes", f"not known: {here.workload.program} is linked statically")
        elif here.command is not None and not here.workload.opaque and here.workload.program:
            yield ok("OpenMP runtimes", "none found")
        return
    told = ", ".join(_name(one) for one in runtimes)
    found = [*_abort(runtimes), *_narrow(runtimes, told), *_fork(runtimes)]
    yield from found
    if not found:
        yield ok("OpenMP runtimes", told)


def _name(one: Found) -> str:
    version = f" {one.library.version}" if one.library.version else ""
    return f"{one.library.kind.label}{version} ({one.how}: {one.by})"


def _abort(runtimes: list[Found]) -> Iterator[HostIssue]:
    """Look for two runtimes that end a process which loads them both."""
    ending = find_ending({one.library.family for one in runtimes})
    if ending is None:
        return
    *both, message = ending
    pair = [next(one for one in runtimes if one.library.family is family) for family in both]
    found, sure = " and ".join(map(_name, pair)), all(one.how is not How.AVAILABLE for one in pair)
    make = error if sure else note
    why = f"a process that starts both is ended by the second one ({message})"
    remedy = "keep one of them: preload none, or the one that the program needs"
    yield make("OpenMP runtimes", found, why, remedy)


def _narrow(runtimes: list[Found], told: str) -> Iterator[HostIssue]:
    """Look for several runtimes, of which one narrows what the others see."""
    families = (one.library.family for one in runtimes)
    narrowing = next((one for one in families if one and one.facts.narrows_at_load), None)
    if len(runtimes) < 2 or not narrowing:
        return
    why = (
        f"{narrowing.label} moves the initial thread to its first place when it is loaded, and another"
        " runtime sees no more: with places of one CPU, all of its threads are on that CPU"
    )
    remedy = "--bind rank, the default, has one place with all CPUs of the rank; not --bind exact"
    yield note("OpenMP runtimes", f"several: {told}", why, remedy)


def _fork(runtimes: list[Found]) -> Iterator[HostIssue]:
    """Look for a runtime whose forked children crash when it has places."""
    for one in runtimes:
        family = one.library.family
        if family is None or family.forks_safely(one.library.version):
            continue
        since = family.name_version(family.facts.forks_safely_from)
        why = f"processes that it forks crash when OMP_PLACES names CPUs (before {since})"
        remedy = f"--bind rank, the default, gives it none, nor does --bind none; or a newer {family.label}"
        yield note("OpenMP runtimes", _name(one), why, remedy)
        return


def check_preloadable(here: HostFacts) -> Iterator[HostIssue]:
    """Tell which libraries could be preloaded, and which of them the command wants."""
    loaded = {one.library.kind.name for one in here.workload.libraries if one.how is How.PRELOADED}
    wanted = _wanted(here)
    for name, path in here.preloadable:
        label = KINDS[name].label
        if name in loaded:
            yield ok(label, "is preloaded")
        elif name in wanted:
            why = f"vLLM's CPU workers want it: {_WANTED[name]}"
            if path:
                yield note(label, "is not preloaded", why, f"--preload {name} ({path})")
            else:
                yield note(label, "is not installed", why, f"install {PACKAGES[name]}, and --preload {name}")
        elif path:
            yield ok(label, f"{path} (--preload {name})")
    others = [(name, path) for name, path in here.preloadable if name not in {*loaded, *wanted}]
    missing = [KINDS[name].label for name, path in others if not path]
    if missing:
        yield ok("to preload", f"not found: {', '.join(missing)}")


def _wanted(here: HostFacts) -> set[str]:
    """Return what the command wants to have preloaded, as far as it is made for this machine."""
    if here.command is None or "vllm" not in here.command.packages:
        return set()
    arch = here.machine.arch if here.machine else ""
    families = {name: KINDS[name].family for name in _WANTED}
    return {name for name, family in families.items() if family is None or family.runs_on(arch)}


def check_pools(here: HostFacts) -> Iterator[HostIssue]:
    """Tell of thread pools that neither the affinity mask nor a variable can size."""
    command = here.command
    if command is None or command.error:
        return
    found = list(_find_pools(here, command))
    yield from found
    if not found:
        yield ok("thread pools", "none known that variables do not reach")


_COUNT_ALL = "count all CPUs of the machine: with a mask of 1 CPU of 2 they took 2"
_TOO_MANY = "each of n ranks has threads for all CPUs, n times too many"


def _find_pools(here: HostFacts, command: CommandFacts) -> Iterator[HostIssue]:
    if command.python and (command.python < (3, 13) or command.isolated):
        series = f"Python {command.python[0]}.{command.python[1]}"
        lacks = "being isolated" if command.python >= (3, 13) else "which 3.13 does"
        found = f"multiprocessing.Pool, ThreadPoolExecutor and os.cpu_count() {_COUNT_ALL}"
        why = f"{_TOO_MANY}; {series} does not read PYTHON_CPU_COUNT, {lacks}"
        yield note("Python's pools", found, why, "give them len(os.sched_getaffinity(0)) workers")
    if "duckdb" in command.packages:
        remedy = "in SQL: SET threads = N, with the N of OMP_NUM_THREADS"
        yield note("DuckDB", f"its threads {_COUNT_ALL}", _TOO_MANY, remedy)
    if "torch" in command.packages:
        remedy = "torch.set_num_interop_threads(1), where a program uses them at all"
        yield note("torch", f"its inter-op threads {_COUNT_ALL}", _TOO_MANY, remedy)
    if command.cpp:
        found = f"threads by std::thread::hardware_concurrency() {_COUNT_ALL}"
        yield note("C++", found, _TOO_MANY, "let the program count what sched_getaffinity tells")
    if here.workload.program.rpartition("/")[2] in ("java", "javaw"):
        yield ok("Java", "reads the affinity mask itself")
    if here.workload.opaque and here.workload.program:
        yield ok("nproc", "in scripts it answers OMP_NUM_THREADS, so the threads of the rank")
