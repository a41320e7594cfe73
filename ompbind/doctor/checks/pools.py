"""Checks of `ompbind doctor`: thread pools of a command that do not follow the affinity mask of their rank.

What a library does depends on its version. The functions here name the version that was found.
"""

from collections.abc import Iterator

from ompbind.cpuset import count
from ompbind.doctor.facts import CommandFacts, HostFacts, HostIssue, note, ok
from ompbind.machine.model import Level

_TOO_MANY = "every rank starts as many, so ranks together have more threads than the machine has CPUs"
_PYTHON_FOLLOWS = (3, 13)
"""The first Python that reads PYTHON_CPU_COUNT, and whose own pools follow the affinity mask."""

_TORCH_FOLLOWS = (2, 14)
"""The first torch whose inter-op thread pools follow the affinity mask."""


def check_pools(host: HostFacts) -> Iterator[HostIssue]:
    """Look for thread pools that neither the affinity mask nor a variable limits."""
    command = host.command
    if command is None or command.error:
        return
    issues = [*_find_python_pools(host, command), *_find_package_pools(host, command), *_find_others(host)]
    yield from issues or [ok("thread pools", "none known that variables do not limit")]


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


def _find_package_pools(host: HostFacts, command: CommandFacts) -> Iterator[HostIssue]:
    versions = {package.name: package.version for package in command.packages}
    if "duckdb" in versions:
        found = f"its thread pool counts {_count_online(host)}"
        remedy = "in SQL: SET threads = N, with the value of OMP_NUM_THREADS"
        yield note("DuckDB", found, _TOO_MANY, remedy)
    if "onnxruntime" in versions:
        found = f"a session starts a thread for each core of the machine{_count_cores(host)}, bound to it"
        why = "threads of a rank run on cores of other ranks, unless the session has a number of threads"
        remedy = "SessionOptions.intra_op_num_threads = N, with the value of OMP_NUM_THREADS"
        yield note("ONNX Runtime", found, why, remedy)
    torch = versions.get("torch")
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
    if host.command and host.command.cpp:
        found = f"std::thread::hardware_concurrency() counts {_count_online(host)}"
        remedy = "let the program count the CPUs of sched_getaffinity()"
        yield note("C++", found, f"if a thread pool uses this count, {_TOO_MANY}", remedy)
    if work.program.rpartition("/")[2] in ("java", "javaw"):
        found = "version 9 and later: sizes its thread pools by the affinity mask"
        yield ok("Java", f"{found}, or by -XX:ActiveProcessorCount=N")
    if work.opaque and work.program:
        found = "in a rank, the command nproc prints the thread count of the rank (OMP_NUM_THREADS)"
        yield ok("nproc", found)


def _count_cores(host: HostFacts) -> str:
    return f" ({len(host.machine.at(Level.CORE))})" if host.machine else ""


def _count_online(host: HostFacts) -> str:
    return f"all {count(len(host.machine.online), 'online CPU')}" if host.machine else "all online CPUs"
