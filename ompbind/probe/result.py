"""What `ompbind probe` saw of threads and runtimes, as values."""

from ompbind.record import Record


class ThreadSight(Record):
    """One thread of a parallel region: what the runtime says of it, and what the kernel does.

    `place` is its OpenMP place number, None when it has none, `places` the runtime's places as lists;
    `cpus_allowed` is the thread's mask as a list, `cpu` the CPU that it ran on.
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
    """What a probe saw: this process, the threads of each runtime, and the runtimes that failed."""

    rank: int | None
    pid: int
    cpus_allowed: str
    cpu: int
    threads: tuple[ThreadSight, ...]
    failed: tuple[str, ...] = ()
