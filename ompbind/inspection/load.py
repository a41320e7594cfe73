"""Find threads that compete for too few CPUs for some time: of a rank, or of several that share CPUs.

*Oversubscription* is more threads that could run than CPUs, for some time. One sample proves nothing: threads
are runnable for a moment whenever they get work. So a *streak* is needed: consecutive samples in which more
threads are runnable than CPUs are in their affinity masks, and have waited long for a CPU since the last
sample: their *run delay*. Time in which the kernel throttled their cgroup (CPU quota) is subtracted.

A thread is runnable while it runs or waits for a CPU. So its CPU time and run delay since the last sample,
divided by the time since then, are how much of the time it was runnable. In a first sample, and where the
kernel counts no run delay, its state counts: R is runnable.

A thread also waits while other processes use its CPUs. So a thread that is not runnable all the time counts
at most in proportion to its CPU time, compared with the busiest thread: a thread that writes the output of
two busy threads waits long beside other processes, but needs a CPU rarely. What n threads on c CPUs wait for
each other is (n - c) / c of their CPU time; what they wait longer, they wait for others (`verdict`).
Without any waiting, a thread would be runnable for its CPU time / (its CPU time + its sleep): its *demand*.
If the demand of all is not too much, and they do not use all the time of the CPUs themselves, perhaps only
other processes made them wait: that is never an error.

A CPU quota gives a set of CPUs less: threads of one cgroup have no more CPUs than the quota, rounded down.
Then time in which they are throttled is waiting, too.

A streak of three samples over at least 10 seconds is an error; a warning where the kernel counts no run
delay. A shorter streak is a warning at the end of a short run. Oversubscription is a fact about CPUs: the
threads of all ranks that share them are counted together too. Each rank alone may have no more threads than
CPUs then, and sharing was asked for: a warning.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ompbind.cpuset import EMPTY, CpuSet, count, join_words, named, union
from ompbind.inspection import diagnosis
from ompbind.inspection.verdict import CpuUsage, OthersLoad, ThreadIssue
from ompbind.machine.read.linux_cgroup import Throttling, read_throttling
from ompbind.machine.read.root import DirectoryRoot
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.record import Record
from ompbind.text import Severity

MIN_SAMPLES = 3
MIN_SPAN_S = 10.0
"""How many samples a streak needs, and how many seconds from its first sample to its last."""

CONFIRM_STEPS_S = (0.5, MIN_SPAN_S - 0.4)
"""Seconds to the second sample, which shows the load, and to a third one, which confirms oversubscription."""

_LEAST_PART = 0.2  # of the run: a shorter streak that covers as much is a warning
_MIN_DELAY = 0.5  # the run delay, relative to CPU time, above which threads compete for CPUs
_MIN_THREADS = 1.25  # runnable threads for each CPU, above which they are too many
LEAST_SHARE = 0.05  # a thread competes if it was runnable, and is busy if it ran, for this share of the time
_ALWAYS = 0.9  # a thread that was runnable for this share of the time wants a CPU all the time
_LEAST_AWAKE = 0.02  # a thread that waited for more than the rest of the time wanted a CPU all the time
SHOWN = 4  # processes that a text names


class LoadSample(Record):
    """The processes of one rank at a time of a monotonic clock.

    `throttling` is how the CPU quota has throttled their cgroup since it was created, `quota` is that quota
    in CPUs. `usage` is the CPU time of all CPUs, and of all ranks that share CPUs with the rank. All are None
    if unknown.
    """

    at_s: float
    processes: tuple[ProcessState, ...]
    throttling: Throttling | None = None
    quota: float | None = None
    usage: CpuUsage | None = None

    @property
    def delay_s(self) -> float:
        """The run delay of all threads so far, as far as it is known."""
        return sum(thread.delay_s or 0.0 for process in self.processes for thread in process.threads)

    def throttled_since(self, before: "LoadSample | None") -> Throttling | None:
        """Return how the cgroup was throttled since an earlier sample; None if unknown."""
        if self.throttling is None or before is None or before.throttling is None:
            return None
        return self.throttling.since(before.throttling)


class _Load(Record):
    """A thread in one sample: the share of the time since the last sample in which it was runnable.

    `busy_s` and `delay_s` are its CPU time and its run delay since then; `delay_s` is None if unknown.
    `demand` is the share of the time in which it would have been runnable if it never had to wait.
    """

    process: ProcessState
    thread: ThreadState
    share: float
    busy_s: float = 0.0
    delay_s: float | None = None
    demand: float = 0.0


class Competitors(Record):
    """Threads that compete for fewer CPUs than threads, in one sample.

    `usable` is how many of the CPUs the quota gives to them. `runnable` is how many were runnable on average
    since the last sample, in a first sample at its moment, `demand` how many would have been. `busy_s` and
    `delay_s` are as in `_Load`, without the time in which their cgroup was throttled, unless the threads are
    too many for the quota only.
    """

    cpus: CpuSet
    usable: int
    threads: tuple[tuple[ProcessState, ThreadState], ...]
    runnable: float
    demand: float
    busy_s: float
    delay_s: float | None


class Streak(Record):
    """Consecutive samples with competitors that wait; `samples` is 0 if the last sample has none.

    `busy_s` and `delay_s` are summed since the first sample, `runnable_s` is the number of competitors times
    the seconds in which they were runnable, `demand_s` the same of their demand. With `measured` the kernel
    counts run delays.
    """

    last: LoadSample | None = None
    competitors: Competitors | None = None
    began_at_s: float = 0.0
    samples: int = 0
    busy_s: float = 0.0
    delay_s: float = 0.0
    runnable_s: float = 0.0
    demand_s: float = 0.0
    measured: bool = True

    @property
    def span_s(self) -> float:
        """Seconds from the first sample of the streak to the last."""
        return self.last.at_s - self.began_at_s if self.last and self.samples else 0.0

    @property
    def is_proof(self) -> bool:
        """Return whether the streak is long enough to be an issue."""
        return self.samples >= MIN_SAMPLES and self.span_s >= MIN_SPAN_S

    def is_most_of(self, run_s: float) -> bool:
        """Return whether a streak that is no proof covers much of a run of `run_s` seconds."""
        return self.samples >= MIN_SAMPLES and not self.is_proof and self.span_s >= _LEAST_PART * run_s


def add_sample(streak: Streak, sample: LoadSample) -> Streak:
    """Return the streak with one more sample, or a new streak if this sample ends it."""
    competitors = find_competitors(streak.last, sample)
    delay_s = competitors.delay_s if competitors else 0.0  # an unknown delay counts as long
    if competitors is None or (delay_s is not None and delay_s <= _MIN_DELAY * competitors.busy_s):
        return Streak(last=sample)
    if streak.last is None or not streak.samples:
        return Streak(last=sample, competitors=competitors, began_at_s=sample.at_s, samples=1)
    return streak.replace(
        last=sample,
        competitors=competitors,
        samples=streak.samples + 1,
        busy_s=streak.busy_s + competitors.busy_s,
        delay_s=streak.delay_s + (delay_s or 0.0),
        runnable_s=streak.runnable_s + competitors.runnable * (sample.at_s - streak.last.at_s),
        demand_s=streak.demand_s + competitors.demand * (sample.at_s - streak.last.at_s),
        measured=streak.measured and delay_s is not None,
    )


def find_competitors(before: LoadSample | None, sample: LoadSample) -> Competitors | None:
    """Return the threads with the most runnable threads per CPU, if that is too many; else None.

    Threads with smaller masks compete for these CPUs, so each mask is a candidate, and the union of all.
    """
    loads = _measure(before, sample)
    throttling = sample.throttled_since(before)
    found = []
    masks = {load.thread.cpus for load in loads if load.share}
    for cpus in {*masks, union(load.thread.cpus for load in loads)} - {EMPTY}:
        inside = [load for load in loads if load.share and load.thread.cpus <= cpus]
        runnable, usable = _count_runnable(inside), len(cpus)
        if sample.quota is not None:
            usable = min(usable, max(1, int(sample.quota)))
        if runnable <= _MIN_THREADS * usable:
            continue
        delays = [load.delay_s for load in inside if load.delay_s is not None]
        # While the cgroup is throttled on a CPU, all runnable threads there wait.
        is_by_cpus = usable == len(cpus)
        throttled_s = throttling.throttled_s * runnable / usable if throttling and is_by_cpus else 0.0
        threads = tuple((load.process, load.thread) for load in inside if load.share >= LEAST_SHARE)
        busy_s = sum(load.busy_s for load in inside)
        delay_s = max(0.0, sum(delays) - throttled_s) if len(delays) == len(inside) else None
        found.append(
            Competitors(
                cpus=cpus,
                usable=usable,
                threads=threads,
                runnable=runnable,
                demand=sum(load.demand for load in inside),
                busy_s=busy_s,
                delay_s=delay_s,
            )
        )

    def rate(each: Competitors) -> tuple[float, int, int]:
        return each.runnable / each.usable, len(each.cpus), -each.cpus.bits

    return max(found, key=rate, default=None)


def find_runnable(*samples: tuple[float, tuple[ProcessState, ...]]) -> float:
    """Return the most runnable threads of one process, on average between two samples with their times."""
    loads = _measure(*(LoadSample(at_s=at_s, processes=each) for at_s, each in samples))
    return max(_count_runnable(list(each)) for _, each in groupby(loads, lambda load: load.process.pid))


def _count_runnable(loads: Sequence[_Load]) -> float:
    """Return how many threads were runnable on average, without threads that only waited for others."""
    busiest = max(loads, key=lambda load: load.busy_s, default=None)
    if busiest is None or not busiest.busy_s:
        return sum(load.share for load in loads)
    return sum(
        load.share if load.share >= _ALWAYS else min(load.share, busiest.share * load.busy_s / busiest.busy_s)
        for load in loads
    )


def _measure(before: LoadSample | None, sample: LoadSample) -> list[_Load]:
    """Return the load of each thread; a thread that has started since `before` counts from its start."""
    pairs = [(process, thread) for process in sample.processes for thread in process.threads]
    span_s = sample.at_s - before.at_s if before else 0.0
    if before is None or span_s <= 0 or any(thread.delay_s is None for _, thread in pairs):
        return [_Load(process=process, thread=thread, share=thread.state == "R") for process, thread in pairs]
    earlier = {thread.tid: thread for process in before.processes for thread in process.threads}
    loads = []
    for process, thread in pairs:
        old = earlier.get(thread.tid)
        busy_s = max(0.0, thread.busy_s - (old.busy_s if old else 0.0))
        delay_s = max(0.0, (thread.delay_s or 0.0) - ((old and old.delay_s) or 0.0))
        share = min(1.0, (busy_s + delay_s) / span_s)
        awake = 1 - delay_s / span_s  # running or asleep
        demand = min(1.0, busy_s / span_s / awake) if awake > _LEAST_AWAKE else 1.0
        load = _Load(
            process=process, thread=thread, share=share, busy_s=busy_s, delay_s=delay_s, demand=demand
        )
        loads.append(load)
    return loads


def make_load_issue(streak: Streak, *, is_own: bool = True) -> ThreadIssue:
    """Return the issue of a streak of at least three samples.

    It is an error if the streak is long enough, and one rank or process, `is_own`, has too many threads.
    """
    assert streak.competitors is not None
    competitors, cpus = streak.competitors, named("CPU", streak.competitors.cpus)
    if competitors.usable < len(competitors.cpus):
        cpus += f" (the CPU quota gives the time of {competitors.usable})"
    samples = f"{streak.samples} samples over {streak.span_s:.{1 if streak.span_s < MIN_SPAN_S else 0}f} s"
    usable_s = competitors.usable * streak.span_s
    is_certain = streak.demand_s > _MIN_THREADS * usable_s or streak.busy_s > _ALWAYS * usable_s
    is_error = is_own and streak.measured and streak.is_proof and is_certain
    if streak.measured:
        runnable = streak.runnable_s / streak.span_s
        ratio = streak.delay_s / streak.busy_s if streak.busy_s else runnable
        ratio = min(ratio, runnable / competitors.usable - 1)
        text = f"on average {runnable:.1f} threads were runnable on {cpus} in {samples}, and waited"
        text += f"{' for each other' if is_certain else ''} {ratio:.1f} times as long as they ran"
        text += "" if is_certain else ", perhaps for other processes"
    else:
        text = f"{competitors.runnable:.0f} threads were runnable on {cpus} in the last of {samples}"
        text += "; the kernel does not count how long they waited (CONFIG_SCHED_INFO)"
    owners = [process for process, _ in competitors.threads]
    pool, processes = _name_pool(competitors) if is_own else (name_processes(owners), 0)
    remedy = f" (--processes-per-rank {processes}, or -t 1)" if processes > 1 else ""
    remedy += diagnosis.advise_waiting(owners)
    return ThreadIssue(
        code="oversubscribed",
        severity=Severity.ERROR if is_error else Severity.WARNING,
        threads=len(competitors.threads),
        text=f"{text}; {pool}; use no more threads than CPUs{remedy}",
    )


def name_processes(of_threads: Iterable[ProcessState]) -> str:
    """Name the processes of threads: "the processes are python (12) with 2 threads and yes (13)"."""
    numbers = Counter((process.pid, process.name) for process in of_threads)
    names = [
        f"{name} ({pid}){f' with {number} threads' if number > 1 else ''}"
        for (pid, name), number in numbers.most_common(SHOWN)
    ]
    names += [f"{len(numbers) - SHOWN} more"] if len(numbers) > SHOWN else []
    return f"the processes are {join_words(names)}"


def _name_pool(competitors: Competitors) -> tuple[str, int]:
    """Name the process and the threads that most competitors belong to; count the processes like it.

    Threads whose names differ only in a number at the end (io_thd_1) are one pool. Of equally large pools,
    those without an initial thread come first.
    """
    pools: dict[tuple[int, str], list[str]] = {}
    for process, thread in sorted(
        competitors.threads, key=lambda pair: (pair[1].tid == pair[0].pid, pair[0].pid)
    ):
        pools.setdefault((process.pid, thread.name.rstrip("0123456789")), []).append(thread.name)
    pid, stem = max(pools, key=lambda pool: len(pools[pool]))
    names = pools[pid, stem]
    process = next(process for process, _ in competitors.threads if process.pid == pid)
    name = names[0] if len({*names}) == 1 else f"{stem}*"
    text = f"likely pool: {count(len(names), 'thread')} {name!r} of {process.name} ({pid})"
    namesakes = {other.pid for other, _ in competitors.threads if other.name == process.name} - {pid}
    similar = [other for other in namesakes if len(pools.get((other, stem), ())) == len(names)]
    if similar:
        text += f", and as many of {count(len(similar), 'other process')} with this name"
    if runtimes := diagnosis.name_runtimes(process):
        limit = process.env.get("OMP_NUM_THREADS")
        started = f" and was executed with OMP_NUM_THREADS={limit}" if limit else ""
        text += f", which has loaded {' and '.join(runtimes)}{started}"
    return text, 1 + len(similar)


def read_load(processes: Sequence[ProcessState], at_s: float, quota: float | None) -> LoadSample:
    """Make a sample of processes that were just read, of a cgroup with this quota."""
    throttling = read_throttling(DirectoryRoot("/"), str(processes[0].pid)) if processes else None
    return LoadSample(at_s=at_s, processes=tuple(processes), throttling=throttling, quota=quota)


def find_others(load: OthersLoad, meanwhile: str, threads: int) -> Iterator[ThreadIssue]:
    """Yield a warning if other processes used much of the CPUs of ranks with so many threads."""
    if load.is_much:
        text = f"{load.text} in {load.span_s:.{1 if load.span_s < 10 else 0}f} s{meanwhile}"
        yield ThreadIssue(code="others", severity=Severity.WARNING, threads=threads, text=text)
