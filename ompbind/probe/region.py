"""A built-in OpenMP program: run a real parallel region in every OpenMP runtime of this machine.

    for each candidate library:
        fork --> child loads the library --> GOMP_parallel --> each thread reads its own mask and CPU
                 child writes a JSON line for each thread to a pipe --> parent collects them

Each runtime is loaded in its own child, since the first runtime in a process can narrow the mask that the
next one sees. `GOMP_parallel`, to which gcc compiles a parallel region, exists in all of these runtimes.
"""

import ctypes
import json
import os
import signal
import threading
from collections.abc import Mapping

from ompbind.commands.rank_variables import find_rank
from ompbind.cpuset import CpuSet
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.procfs.reader import read_mapped_files
from ompbind.programs.python_packages import find_candidates, identify_runtime, name_runtime
from ompbind.record import Record


class ProbedThread(Record):
    """One thread of a parallel region: facts from its runtime and from the kernel.

    `runtime` and `path` are the name and the file of the runtime, `thread` is the OpenMP number of the
    thread, `place` that of its place, None without places; `places` are all places of the runtime.
    `cpus_allowed` is the affinity mask of the thread. All CPU sets are kernel list text.
    """

    runtime: str
    path: str
    thread: int
    threads: int
    place: int | None
    places: tuple[str, ...]
    cpus_allowed: str
    cpu: int


class ProbeResult(Record):
    """The result of a probe: this process, the threads of each runtime, and the paths of failed runtimes.

    `rank` is None outside a run; `cpus_allowed` is "" on systems without affinity masks.
    """

    rank: int | None
    pid: int
    cpus_allowed: str
    cpu: int
    threads: tuple[ProbedThread, ...]
    failed: tuple[str, ...] = ()


_TIMEOUT_S = 20  # a child that has not exited by then is killed; some runtimes hang while they are loaded
_NO_LIBRARY = b"no library"  # a child writes this, or nothing if the runtime has killed it


def run_probe(env: Mapping[str, str], python: str = "") -> ProbeResult:
    """Probe every OpenMP runtime of the system and of a Python ("": the default), one after the other."""
    probed: dict[tuple[str, OmpRuntime | None], tuple[str, list[ProbedThread]]] = {}
    for candidate in find_candidates(env, python):
        if identify_runtime(candidate) not in probed:
            path, found = _run_in_child(candidate)
            if path is not None:
                probed.setdefault(identify_runtime(path), (path, found))
    return ProbeResult(
        rank=find_rank(env),
        pid=os.getpid(),
        cpus_allowed=_read_own_mask(),
        cpu=_read_own_cpu(),
        threads=tuple(thread for _, threads in probed.values() for thread in threads),
        failed=tuple(path for path, threads in probed.values() if not threads),
    )


def _run_in_child(candidate: str) -> tuple[str | None, list[ProbedThread]]:
    """Run a region in a forked child; return the path of the loaded library and its threads.

    Returns (None, []) if there is no such library, and no threads if the child crashed or hung.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
            signal.alarm(_TIMEOUT_S)
            _write_region(candidate, write_end)
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, encoding="utf-8") as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(pid, 0)
    # Some runtimes register with a file, which they remove only at a normal exit.
    for file in {runtime.facts.leftover_file for runtime in OmpRuntime if runtime.facts.leftover_file}:
        try:
            os.unlink(file.format(pid=pid, uid=os.getuid()))
        except OSError:
            pass  # most runtimes have none
    if not lines:
        return candidate, []
    if lines[0] == _NO_LIBRARY.decode():
        return None, []
    records = [json.loads(line) for line in lines[1:]]
    threads = [ProbedThread(**{**record, "places": tuple(record["places"])}) for record in records]
    return lines[0], sorted(threads, key=lambda thread: thread.thread)


def _write_region(candidate: str, pipe: int) -> None:
    """Run a parallel region of a runtime; write the path of the library, and a line for each thread."""
    try:
        library = ctypes.CDLL(candidate)
        loaded = read_mapped_files("self", lambda file: name_runtime(file) is not None)
        path = loaded[0] if loaded else candidate
    except OSError:
        os.write(pipe, _NO_LIBRARY)
        return
    os.write(pipe, path.encode("utf-8", "surrogateescape") + b"\n")
    count = int(library.omp_get_max_threads())
    barrier = threading.Barrier(count)  # otherwise one thread might run the body twice
    threads: list[ProbedThread] = []

    def run_body(_: int | None) -> None:
        try:
            barrier.wait(timeout=5)
        except threading.BrokenBarrierError:
            pass  # the runtime has started fewer threads than announced; these are still reported
        threads.append(_read_thread(library, path))

    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(run_body)
    library.GOMP_parallel(body, None, ctypes.c_uint(count), ctypes.c_uint(0))
    for thread in threads:
        os.write(pipe, json.dumps(thread.as_dict()).encode() + b"\n")


def _read_thread(library: ctypes.CDLL, path: str) -> ProbedThread:
    place = int(library.omp_get_place_num())
    places = []
    for number in range(int(library.omp_get_num_places())):
        size = int(library.omp_get_place_num_procs(number))
        ids = (ctypes.c_int * max(size, 1))()
        library.omp_get_place_proc_ids(number, ids)
        places.append(str(CpuSet(ids[:size])))
    runtime = name_runtime(path)
    return ProbedThread(
        runtime=runtime.label if runtime else os.path.basename(path),
        path=path,
        thread=int(library.omp_get_thread_num()),
        threads=int(library.omp_get_num_threads()),
        place=place if place >= 0 else None,
        places=tuple(places),
        cpus_allowed=_read_own_mask(),
        cpu=_read_own_cpu(),
    )


def _read_own_mask() -> str:
    return str(CpuSet(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ""


def _read_own_cpu() -> int:
    """Return the CPU that the calling thread runs on, -1 if the C library does not report it."""
    try:
        return int(ctypes.CDLL(None).sched_getcpu())
    except AttributeError:
        return -1
