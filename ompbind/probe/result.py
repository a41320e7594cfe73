"""The result of `ompbind probe`, as values."""

from ompbind.record import Record


class ProbedThread(Record):
    """One thread of a parallel region: facts from its runtime and from the kernel.

    `runtime` and `path` are the name and the file of the runtime, `thread` the OpenMP thread number of
    `threads`. `place` is the OpenMP place number, None without places; `places` are all places of the
    runtime. `cpus_allowed` is the affinity mask of the thread, `cpu` the CPU that it runs on. All CPU sets
    are kernel list text.
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

    `rank` is None outside a run. `cpus_allowed` and `cpu` are as in `ProbedThread`, for this process;
    `cpus_allowed` is "" on systems without affinity masks.
    """

    rank: int | None
    pid: int
    cpus_allowed: str
    cpu: int
    threads: tuple[ProbedThread, ...]
    failed: tuple[str, ...] = ()
