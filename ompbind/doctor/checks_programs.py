"""Checks of `ompbind doctor`: what the command would run, its wrappers, runtimes, preloads and thread pools.

What a pool does depends on the version of its library: the checks of Python and torch name the version that
they found. To add a program or a Python package with a thread pool: a row in POOLS.
"""

from collections.abc import Iterator
from math import ceil

from ompbind.cpuset import count
from ompbind.doctor.facts import CommandFacts, HostFacts, HostIssue, error, note, ok
from ompbind.machine.model import Level
from ompbind.openmp.binding import OR_HOLD
from ompbind.openmp.runtimes import OmpRuntime, find_aborting_pair
from ompbind.openmp.variables import MASK_COUNTS
from ompbind.planning.notes import render_fewer_cpus
from ompbind.planning.wrapper_notes import find_effects
from ompbind.programs import libraries
from ompbind.programs.libraries import DetectedLibrary, DetectionMethod, LibraryRole

_ALLOCATION = "torch operations that allocate large tensors take longer with the allocator of glibc"
_EXPECTED = {"tcmalloc": _ALLOCATION, OmpRuntime.INTEL.facts.library: OmpRuntime.INTEL.facts.preload_benefit}
"""The libraries that vLLM's CPU workers expect, and why programs are faster with them."""

_ALSO_RUN_BY = {
    "i386": ("x86_64", "i586", "i686"), "x32": ("x86_64",), "arm": ("aarch64", "armv7l", "armv8l"),
    "ppc": ("ppc64",), "mips": ("mips64",),
}  # fmt: skip
"""Machines that also run the programs of an architecture: machines of 64 bits mostly run 32 bits too."""


def check_command(host: HostFacts) -> Iterator[HostIssue]:
    """Report what a command would run, or why it cannot run."""
    command, work = host.command, host.workload
    if command is None:
        return
    name, arch = command.argv[0], host.machine.arch if host.machine else ""
    if command.error:
        yield error("command", command.error, "no rank can be started", command.hint or "give its path")
    elif not work.program:
        yield ok("command", f"runs {name}, and ompbind cannot see what that program starts")
    elif command.arch and arch not in ("", "unknown", command.arch, *_ALSO_RUN_BY.get(command.arch, ())):
        found = f"{work.program} is for {command.arch}"
        why = f"this machine is {arch}: the program runs only if an emulator is registered"
        yield note("command", found, why, f"use a program that is built for {arch}")
    else:
        python = ""
        if command.python:
            version = ".".join(map(str, command.python))
            isolated = ", isolated" if command.isolated else ""
            python = f" (Python {version}{isolated}; packages in {work.site_packages or 'none'})"
        yield ok("command", f"runs {work.program}{python}")


def check_wrappers(host: HostFacts) -> Iterator[HostIssue]:
    """Look for programs before the command that undo what ompbind does for a rank."""
    effects = list(find_effects(host.workload))
    for found in effects:
        yield note("wrapper", f"the command has '{found.words}'", f"it {found.effect}", found.remedy)
    if host.command is not None and not effects:
        yield ok("wrapper", "none that undoes a binding")


def check_runtimes(host: HostFacts) -> Iterator[HostIssue]:
    """Look for OpenMP runtimes that conflict in one process."""
    work, runtimes = host.workload, list(host.workload.runtimes())
    issues = [*_check_abort(runtimes), *_check_initial_thread(runtimes), *_check_fork(runtimes)]
    yield from issues
    if runtimes and not issues:
        yield ok("OpenMP runtimes", ", ".join(map(_render_library, runtimes)))
    elif work.static and not runtimes:
        yield ok("OpenMP runtimes", f"not known: {work.program} is statically linked")
    elif host.command and work.program and not (work.opaque or runtimes):
        yield ok("OpenMP runtimes", "none found")


def _render_library(detected: DetectedLibrary) -> str:
    library = detected.library
    version = f" {library.version}" if library.version else ""
    return f"{library.kind.label}{version} ({detected.method}: {detected.origin})"


def _check_abort(runtimes: list[DetectedLibrary]) -> Iterator[HostIssue]:
    aborting = find_aborting_pair({runtime.library.family for runtime in runtimes})
    if aborting is None:
        return
    *families, message = aborting
    pair = [next(found for found in runtimes if found.library.family is family) for family in families]
    make_issue = note if any(found.method is DetectionMethod.AVAILABLE for found in pair) else error
    why = f"if a process starts both, the second runtime aborts it ({message})"
    remedy = "use only one: preload none, or the runtime that the program needs"
    yield make_issue("OpenMP runtimes", " and ".join(map(_render_library, pair)), why, remedy)


def _check_initial_thread(runtimes: list[DetectedLibrary]) -> Iterator[HostIssue]:
    families = (runtime.library.family for runtime in runtimes)
    narrowing = next((family for family in families if family and family.facts.narrows_at_load), None)
    if len(runtimes) < 2 or not narrowing:
        return
    why = (
        f"when {narrowing.label} is loaded, it shrinks the initial thread's affinity mask to the first place;"
    )
    why += " if places are single CPUs, all threads of another runtime run on that CPU"
    remedy = "use --bind rank (the default; one place with all CPUs of the rank), not --bind exact"
    yield note("OpenMP runtimes", f"several: {', '.join(map(_render_library, runtimes))}", why, remedy)


def _check_fork(runtimes: list[DetectedLibrary]) -> Iterator[HostIssue]:
    for runtime in runtimes:
        family = runtime.library.family
        if family is None or family.forks_safely(runtime.library.version):
            continue
        since = family.render_version(family.facts.forks_safely_from)
        why = f"its forked child processes crash if OMP_PLACES names CPUs (before {since})"
        remedy = "use --bind rank (the default) or none, which set no places for it, or a newer"
        yield note("OpenMP runtimes", _render_library(runtime), why, f"{remedy} {family.label}")
        return


def check_preloadable(host: HostFacts) -> Iterator[HostIssue]:
    """Report which libraries can be preloaded, and which of them the command expects."""
    loaded, missing = host.workload.preloaded, []
    is_vllm = host.command is not None and "vllm" in host.command.packages
    arch = host.machine.arch if host.machine else ""
    for name, path in host.preloadable:
        kind = libraries.LIBRARY_KINDS[name]
        if name in loaded:
            yield ok(kind.label, "is preloaded")
        elif is_vllm and name in _EXPECTED and (kind.family is None or kind.family.runs_on(arch)):
            found, remedy = "is not preloaded", f"use --preload {name} ({path})"
            if not path:
                found = "is not installed"
                remedy = f"install {libraries.LIBRARY_PACKAGES[name]} and use --preload {name}"
            yield note(kind.label, found, f"vLLM's CPU workers expect it: {_EXPECTED[name]}", remedy)
        elif path:
            yield ok(kind.label, f"{path} (--preload {name})")
        else:
            missing.append(kind.label)
    if missing:
        yield ok("preloadable libraries", f"not found: {', '.join(missing)}")


_PYTHON_FOLLOWS = (3, 13)  # the first that reads PYTHON_CPU_COUNT, and whose pools follow the affinity mask
_TORCH_FOLLOWS = (2, 14)  # the first whose inter-op thread pools follow the affinity mask

_TOO_MANY = "every rank starts as many, so ranks together have more threads than the machine has CPUs"
_IF_COUNTED = f"if a pool uses this count, {_TOO_MANY}"
_UNEVEN = "ranks with fewer CPUs share them, ranks with more CPUs do not use all"
_FILL = "in the command, with --fill"

_BY_MASK, _ROUNDS_UP = "follows the mask", "follows mask and quota, rounded up"
"""In place of a remedy: what a pool follows that reads no variable. It needs a remedy only under a quota."""

POOLS: tuple[tuple[str, tuple[str, ...], str, str, str, str], ...] = (
    ("DuckDB", ("import duckdb",), "its pool counts {online}, or the CPUs of a smaller quota, rounded up",
     "in SQL: SET threads = N, with the value of OMPBIND_NUM_THREADS", _TOO_MANY,
     "https://duckdb.org/docs/stable/configuration/overview"),
    ("ONNX Runtime", (f"import {libraries.ONNXRUNTIME}",),
     f"{libraries.ONNXRUNTIME_BINDS}; where a cpuset forbids this core, the thread prints"
     " 'pthread_setaffinity_np failed … error code: 22'", libraries.ONNXRUNTIME_REMEDY + OR_HOLD,
     "threads of a rank run on CPUs of other ranks, unless the session has a number of threads",
     "https://onnxruntime.ai/docs/performance/tune-performance/threading.html"),
    ("Ray", ("import ray",), "without num_cpus it counts {online}, and starts as many worker processes",
     "ray.init(num_cpus=N), with the value of OMPBIND_NUM_THREADS; or 'ray start --num-cpus N'", _TOO_MANY,
     "https://docs.ray.io/en/latest/ray-core/scheduling/resources.html"),
    ("zstd", ("zstd", "zstdmt"),
     "with -T0, and as zstdmt, it starts a thread for each core of the machine{cores};"
     " without -T it starts one, since version 1.5.7 up to 4", f"-T{{threads}} {_FILL}", _TOO_MANY,
     "https://github.com/facebook/zstd/blob/dev/programs/zstd.1.md"),
    ("pigz", ("pigz", "unpigz"), "without -p it counts {online}, and starts a thread for each",
     f"-p {{threads}} {_FILL}", _TOO_MANY, "https://zlib.net/pigz/pigz.pdf"),
    ("nginx", ("nginx",),
     "with 'worker_processes auto' it counts {online}, and starts a worker process for each;"
     " 'worker_cpu_affinity auto' binds the first to CPU 0, the second to CPU 1 and so on",
     "in nginx.conf: worker_processes N, and no worker_cpu_affinity",
     "the workers of a rank share its CPUs, or are bound to CPUs of other ranks",
     "https://nginx.org/en/docs/ngx_core_module.html"),
    ("memcached", ("memcached",), "without -t it starts 4 worker threads on each machine",
     f"-t {{threads}} {_FILL}", _UNEVEN, "https://github.com/memcached/memcached/blob/master/doc/memcached.1"),
    ("whisper.cpp", ("whisper-cli", "whisper-server", "whisper-cpp"),
     "without -t it starts up to 4 threads, also on fewer CPUs", f"-t {{threads}} {_FILL}", _UNEVEN,
     "https://github.com/ggml-org/whisper.cpp/blob/master/examples/cli/README.md"),
    ("Ollama", ("ollama",),
     "it counts the cores of the machine{cores}, and ignores the affinity mask and the CPU quota;"
     " versions that start llama-server read LLAMA_ARG_THREADS, which ranks get",
     "'PARAMETER num_thread N' in the Modelfile, or options.num_thread in requests, with the value of"
     " OMPBIND_NUM_THREADS", _TOO_MANY, "https://github.com/ollama/ollama/issues/17916"),
    ("R", ("R", "Rscript"), "parallel::detectCores() counts {online}; ranks get variables for its BLAS",
     "makeCluster(N) or mclapply(mc.cores = N), and --processes-per-rank N", _IF_COUNTED,
     "https://stat.ethz.ch/R-manual/R-devel/library/parallel/html/detectCores.html"),
    ("data.table of R", ("R", "Rscript"), "it uses half of the CPUs of the rank",
     "--env R_DATATABLE_NUM_THREADS={threads}", "the other CPUs of the rank stay idle",
     "https://rdatatable.gitlab.io/data.table/reference/openmp-utils.html"),
    ("Node.js", ("node", "nodejs"),
     "os.cpus() lists {online}, often for cluster and worker_threads; ranks get UV_THREADPOOL_SIZE",
     "let the program use os.availableParallelism() (version 18.14 and later)", _IF_COUNTED,
     "https://nodejs.org/api/os.html#osavailableparallelism"),
    ("GROMACS", ("gmx", "gmx_d", "mdrun"), "without -nt and -ntmpi, mdrun starts threads for {online}",
     f"-nt {{threads}} {_FILL}", _TOO_MANY,
     "https://manual.gromacs.org/current/user-guide/mdrun-performance.html"),
    ("Julia", ("julia",), "ranks get JULIA_NUM_THREADS; --threads auto follows the mask", "", "",
     "https://docs.julialang.org/en/v1/manual/multi-threading/"),
    ("TBB", ("import tbb",), "its threads follow the affinity mask", _BY_MASK, "",
     "https://uxlfoundation.github.io/oneTBB/main/tbb_userguide/Controlling_Parallelism.html"),
    ("OpenVINO", ("import openvino",), "its threads follow the affinity mask, each is bound to a core of it",
     _BY_MASK, "", "https://docs.openvino.ai/2025/openvino-workflow/running-inference/inference-devices-and-modes/"
     "cpu-device/performance-hint-and-thread-scheduling.html"),
    ("Java", ("java", "javaw"),
     "version 9 and later: its thread pools follow the affinity mask and the CPU quota, rounded up",
     _ROUNDS_UP, "", "https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html"),
)  # fmt: skip
"""Programs with thread pools; most pools follow neither the affinity mask nor a variable.

Each row has a label, names of files ("import NAME" for a package of Python or a library), what it does
without a limit, how to limit it, why that matters ("": it stays within a rank), and the source. {online} and
{cores} stand for the numbers of the machine.
"""


def check_pools(host: HostFacts) -> Iterator[HostIssue]:
    """Look for thread pools that neither the affinity mask nor a variable limits."""
    command = host.command
    if command is None or command.error:
        return
    issues = [*_find_python_pools(host, command), *_find_known(host, command), *_find_others(host)]
    yield from issues
    if host.workload.opaque and host.workload.program:
        yield ok("nproc", "in a rank, this command prints the thread count of the rank (OMP_NUM_THREADS)")
    others = "others are " if issues else ""
    yield ok("thread pools", f"{others}not known: --verify and 'ompbind inspect' show all threads of a run")


def _find_python_pools(host: HostFacts, command: CommandFacts) -> Iterator[HostIssue]:
    """Check multiprocessing and concurrent.futures: their sizes come from os.cpu_count() before 3.13."""
    if command.python is None:
        return
    version = ".".join(map(str, command.python))
    if command.python < _PYTHON_FOLLOWS:
        found = "multiprocessing.Pool and ProcessPoolExecutor have a worker for each online CPU"
        if host.machine:
            cpus = len(host.machine.online)
            found += f" ({cpus}), ThreadPoolExecutor has up to {min(32, cpus + 4)} threads"
        why = f"{_TOO_MANY}; ranks get PYTHON_CPU_COUNT, but Python {version} does not read it (3.13 does)"
        yield note("Python's pools", found, why, "give them len(os.sched_getaffinity(0)) workers")
    elif command.isolated:
        found = f"os.cpu_count() counts {_count_online(host)}"
        why = "isolated mode ignores PYTHON_CPU_COUNT; programs that use this count start too many threads"
        remedy = f"use os.process_cpu_count(), as the pools of Python {version} do"
        yield note("Python's pools", found, why, remedy)


def _find_known(host: HostFacts, command: CommandFacts) -> Iterator[HostIssue]:
    """Look at the program, and at the packages of its Python, by POOLS and by the version of torch."""
    loaded = {found.library.kind.name for found in host.workload.libraries}  # of programs in C++
    known = {f"import {name}" for name in (*loaded, *command.packages)}
    known.add(host.workload.program.rpartition("/")[2])
    machine = host.machine
    quota, cpus = (machine.quota or 1e9, len(machine.allowed)) if machine else (1e9, 1)
    for label, names, found, remedy, why, _ in POOLS:
        if not known.intersection(names):
            continue
        found = found.format(online=_count_online(host), cores=_count_cores(host))
        most = {_BY_MASK: cpus, _ROUNDS_UP: min(cpus, ceil(quota))}.get(remedy, 0)
        if machine and most > quota:
            why = f"no variable limits them, and the CPU quota is only {quota:g}: all threads are throttled"
            fewer = f"'ompbind run {render_fewer_cpus(machine, quota)}' gives a rank fewer CPUs"
            yield note(label, found, why, fewer)
        else:
            yield note(label, found, why, remedy) if why else ok(label, found)
    if (torch := command.packages.get("torch")) is not None:
        version = f"version {'.'.join(map(str, torch))}" if torch else "before version 2.14"
        pools = f"{version}: its inter-op thread pools"
        if torch >= _TORCH_FOLLOWS:
            yield ok("torch", f"{pools} follow the affinity mask")
        else:
            remedy = "torch.set_num_interop_threads(1), if the program uses them at all"
            yield note(
                "torch", f"{pools} count all cores of the machine{_count_cores(host)}", _TOO_MANY, remedy
            )


def _find_others(host: HostFacts) -> Iterator[HostIssue]:
    work = host.workload
    origins = {found.library.kind: found.origin for found in reversed(work.libraries)}
    for kind, origin in origins.items():
        if kind.role is LibraryRole.BLAS:
            variable = f"{kind.name.upper()}_NUM_THREADS"
            limit = f"ranks get {variable}, which limits its threads"
            if variable in MASK_COUNTS:
                limit = f"its threads follow {variable}, or without it the affinity mask"
            yield ok(kind.label, f"of {origin}: {limit}")
    is_known = any(work.program.rpartition("/")[2] in names for _, names, *_ in POOLS)
    is_known |= any(kind.name == "tbb" for kind in origins)
    if host.command and host.command.cpp and not is_known:
        found = f"std::thread::hardware_concurrency() counts {_count_online(host)}"
        remedy = "let the program count the CPUs of sched_getaffinity()"
        yield note("C++", found, _IF_COUNTED, remedy)


def _count_cores(host: HostFacts) -> str:
    return f" ({len(host.machine.at(Level.CORE))})" if host.machine else ""


def _count_online(host: HostFacts) -> str:
    return f"all {count(len(host.machine.online), 'online CPU')}" if host.machine else "all online CPUs"
