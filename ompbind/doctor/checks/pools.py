"""Checks of `ompbind doctor`: thread pools that neither the affinity mask nor a variable limits.

To add a program or a Python package: a row in POOLS. What a pool does depends on the version of its library:
the checks of Python and torch name the version that they found.
"""

from collections.abc import Iterator

from ompbind.cpuset import count
from ompbind.doctor.facts import CommandFacts, HostFacts, HostIssue, note, ok
from ompbind.machine.model import Level
from ompbind.openmp.variables import MASK_COUNTS
from ompbind.programs.library_catalog import (
    ONNXRUNTIME,
    ONNXRUNTIME_BINDS,
    ONNXRUNTIME_REMEDY,
    LibraryRole,
)
from ompbind.record import Record

_TOO_MANY = "every rank starts as many, so ranks together have more threads than the machine has CPUs"
_PYTHON_FOLLOWS = (3, 13)
"""The first Python that reads PYTHON_CPU_COUNT, and whose own pools follow the affinity mask."""

_TORCH_FOLLOWS = (2, 14)
"""The first torch whose inter-op thread pools follow the affinity mask."""


class Pool(Record):
    """A program, or with `is_package` a Python package, that chooses its number of threads itself.

    `names` are the names of its file or package. In `found`, which is what it does without a limit, {online}
    and {cores} stand for the numbers of the machine. `remedy` is how to limit it.
    """

    label: str
    names: tuple[str, ...]
    found: str
    remedy: str
    why: str = _TOO_MANY
    is_package: bool = False


POOLS = (
    Pool(
        label="DuckDB", names=("duckdb",), is_package=True, found="its thread pool counts {online}",
        remedy="in SQL: SET threads = N, with the value of OMPBIND_NUM_THREADS",
    ),
    Pool(
        label="ONNX Runtime", names=(ONNXRUNTIME,), is_package=True,
        found=f"{ONNXRUNTIME_BINDS}; where a cpuset forbids this core, the thread prints"
        " 'pthread_setaffinity_np failed … error code: 22'",
        why="threads of a rank run on CPUs of other ranks, unless the session has a number of threads",
        remedy=ONNXRUNTIME_REMEDY,
    ),
    Pool(
        label="Ray", names=("ray",), is_package=True,
        found="without num_cpus it counts {online}, and starts as many worker processes",
        remedy="ray.init(num_cpus=N), with the value of OMPBIND_NUM_THREADS; or 'ray start --num-cpus N'",
    ),
    Pool(
        label="zstd", names=("zstd", "zstdmt"),
        found="with -T0, and as zstdmt, it starts a thread for each core of the machine{cores};"
        " without -T it starts one, since version 1.5.7 up to 4",
        remedy="-T{threads} in the command, with --fill",
    ),
    Pool(
        label="pigz", names=("pigz", "unpigz"),
        found="without -p it counts {online}, and starts a thread for each",
        remedy="-p {threads} in the command, with --fill",
    ),
    Pool(
        label="nginx", names=("nginx",),
        found="with 'worker_processes auto' it counts {online}, and starts a worker process for each;"
        " 'worker_cpu_affinity auto' binds the first to CPU 0, the second to CPU 1 and so on",
        why="the workers of a rank share its CPUs, or are bound to CPUs of other ranks",
        remedy="in nginx.conf: worker_processes N, and no worker_cpu_affinity",
    ),
    Pool(
        label="memcached", names=("memcached",),
        found="without -t it starts 4 worker threads on each machine",
        why="ranks with fewer CPUs share them, ranks with more CPUs do not use all",
        remedy="-t {threads} in the command, with --fill",
    ),
    Pool(
        label="whisper.cpp", names=("whisper-cli", "whisper-server", "whisper-cpp"),
        found="without -t it starts up to 4 threads, also on fewer CPUs",
        why="ranks with fewer CPUs share them, ranks with more CPUs do not use all",
        remedy="-t {threads} in the command, with --fill",
    ),
    Pool(
        label="Ollama", names=("ollama",),
        found="it counts the cores of the machine{cores}, and ignores the affinity mask and the CPU quota;"
        " versions that start llama-server read LLAMA_ARG_THREADS, which ranks get",
        remedy="'PARAMETER num_thread N' in the Modelfile, or options.num_thread in requests, with the value"
        " of OMPBIND_NUM_THREADS",
    ),
)  # fmt: skip
"""The programs and packages with thread pools that follow neither the affinity mask nor a variable."""


def check_pools(host: HostFacts) -> Iterator[HostIssue]:
    """Look for thread pools that neither the affinity mask nor a variable limits."""
    command = host.command
    if command is None or command.error:
        return
    issues = [*_find_python_pools(host, command), *_find_known(host, command), *_find_torch(host, command)]
    issues += _find_others(host)
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
    """Yield a note for the program, and for each package of its Python, that has a row in POOLS."""
    packages = {package.name for package in command.packages}
    packages |= {found.library.kind.name for found in host.workload.libraries}  # of programs in C++
    program = host.workload.program.rpartition("/")[2]
    for pool in POOLS:
        if packages & {*pool.names} if pool.is_package else program in pool.names:
            found = pool.found.format(online=_count_online(host), cores=_count_cores(host))
            yield note(pool.label, found, pool.why, pool.remedy)


def _find_torch(host: HostFacts, command: CommandFacts) -> Iterator[HostIssue]:
    torch = next((package.version for package in command.packages if package.name == "torch"), None)
    if torch is None:
        return
    version = f"version {'.'.join(map(str, torch))}" if torch else "before version 2.14"
    if torch >= _TORCH_FOLLOWS:
        yield ok("torch", f"{version}: its inter-op thread pools follow the affinity mask")
    else:
        found = f"{version}: its inter-op thread pools count all cores of the machine{_count_cores(host)}"
        remedy = "torch.set_num_interop_threads(1), if the program uses them at all"
        yield note("torch", found, _TOO_MANY, remedy)


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
    if any(kind.name == "tbb" for kind in origins):
        yield ok("TBB", "its threads follow the affinity mask")
    elif host.command and host.command.cpp:
        found = f"std::thread::hardware_concurrency() counts {_count_online(host)}"
        remedy = "let the program count the CPUs of sched_getaffinity()"
        yield note("C++", found, f"if a thread pool uses this count, {_TOO_MANY}", remedy)
    if work.program.rpartition("/")[2] in ("java", "javaw"):
        found = "version 9 and later: sizes its thread pools by the affinity mask"
        yield ok("Java", f"{found}, or by -XX:ActiveProcessorCount=N")


def _count_cores(host: HostFacts) -> str:
    return f" ({len(host.machine.at(Level.CORE))})" if host.machine else ""


def _count_online(host: HostFacts) -> str:
    return f"all {count(len(host.machine.online), 'online CPU')}" if host.machine else "all online CPUs"
