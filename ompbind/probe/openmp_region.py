"""A built-in OpenMP program: runs a real parallel region in every OpenMP runtime of this machine.

Each runtime is loaded in a forked child of its own, since the first one in a process can narrow what
the next one sees. `GOMP_parallel`, the entry point that gcc compiles a region to, exists in all of
them. What is told of a thread is read from the kernel, in that thread.
"""

import ctypes
import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping

from ompbind.cpuset import CpuSet
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.planning.rank_variables import find_rank
from ompbind.probe.libraries import find_candidates, identity, name_runtime
from ompbind.probe.result import ProbeResult, ThreadSight
from ompbind.procfs.reader import read_files

_PATIENCE_S = 20  # after which a runtime that hangs while it is loaded counts as failed; some do

_NO_LIBRARY = b"no library"
"""What a child tells when there is nothing to load; one that tells nothing has been ended by a runtime."""


def run_probe(env: Mapping[str, str]) -> ProbeResult:
    """Probe every OpenMP runtime that this process would find, one after the other."""
    sights: list[ThreadSight] = []
    failed: list[str] = []
    seen: set[tuple[str, OmpRuntime | None]] = set()
    for candidate in find_candidates(env):
        if identity(candidate) in seen:
            continue
        path, threads = _run_in_child(candidate)
        if path is None or identity(path) in seen:
            continue
        seen.add(identity(path))
        sights.extend(threads)
        failed.extend(() if threads else (path,))
    return ProbeResult(
        rank=find_rank(env),
        pid=os.getpid(),
        cpus_allowed=_allowed(),
        cpu=_current_cpu(),
        threads=tuple(sights),
        failed=tuple(failed),
    )


def _run_in_child(candidate: str) -> tuple[str | None, list[ThreadSight]]:
    """Run a region in a forked child; (None, []) when there is no such library, no threads if it failed."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
            signal.alarm(_PATIENCE_S)
            _tell_region(candidate, write_end)
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, encoding="utf-8") as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(pid, 0)
    _clear_away(pid)
    if not lines:
        return candidate, []
    if lines[0] == _NO_LIBRARY.decode():
        return None, []
    threads = [json.loads(line) for line in lines[1:]]
    made = [ThreadSight(**{**fields, "places": tuple(fields["places"])}) for fields in threads]
    return lines[0], sorted(made, key=lambda sight: sight.thread)


def _clear_away(pid: int) -> None:
    """Remove the files by which some runtimes register: they do when they end in order only."""
    for file in {one.facts.leaves for one in OmpRuntime if one.facts.leaves}:
        try:
            os.unlink(file.format(pid=pid, uid=os.getuid()))
        except OSError:
            pass  # most runtimes have none


def _tell_region(candidate: str, pipe: int) -> None:
    """Load a runtime, write the path it was loaded from, run a region, write a line for each thread."""
    try:
        library = ctypes.CDLL(candidate)
        loaded = read_files("self", lambda file: name_runtime(file) is not None)
        path = loaded[0] if loaded else candidate
    except OSError:
        os.write(pipe, _NO_LIBRARY)
        return
    os.write(pipe, path.encode("utf-8", "surrogateescape") + b"\n")
    for sight in _run_region(library, path):
        os.write(pipe, json.dumps(sight.as_dict()).encode() + b"\n")


def _run_region(library: ctypes.CDLL, path: str) -> list[ThreadSight]:
    """Run one parallel region with as many threads as the runtime wants, and look at each of them.

    Threads wait for each other before they look, so that no two of them are one thread's two turns.
    """
    count = int(library.omp_get_max_threads())
    meet = threading.Barrier(count)
    sights: list[ThreadSight] = []

    def look(_: int | None) -> None:
        try:
            meet.wait(timeout=5)
        except threading.BrokenBarrierError:
            pass  # the runtime gave fewer threads than it said; each is still worth a look
        sights.append(_look(library, path))

    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(look)
    library.GOMP_parallel(body, None, ctypes.c_uint(count), ctypes.c_uint(0))
    return sights


def _look(library: ctypes.CDLL, path: str) -> ThreadSight:
    place = int(library.omp_get_place_num())
    runtime = name_runtime(path)
    return ThreadSight(
        runtime=runtime.label if runtime else os.path.basename(path),
        path=path,
        thread=int(library.omp_get_thread_num()),
        threads=int(library.omp_get_num_threads()),
        place=place if place >= 0 else None,
        places=tuple(_places(library)),
        cpus_allowed=_allowed(),
        cpu=_current_cpu(),
    )


def _places(library: ctypes.CDLL) -> Iterator[str]:
    for number in range(int(library.omp_get_num_places())):
        size = int(library.omp_get_place_num_procs(number))
        ids = (ctypes.c_int * max(size, 1))()
        library.omp_get_place_proc_ids(number, ids)
        yield str(CpuSet(ids[:size]))


def _allowed() -> str:
    """Return the mask of the calling thread as a list; "" where the system has no such thing."""
    return str(CpuSet(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ""


def _current_cpu() -> int:
    """Return the CPU that the calling thread runs on, -1 where the C library does not tell."""
    try:
        return int(ctypes.CDLL(None).sched_getcpu())
    except AttributeError:
        return -1
