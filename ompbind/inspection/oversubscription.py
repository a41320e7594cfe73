"""Find oversubscription: more threads that could run than CPUs, for some time.

One sample proves nothing: threads are runnable for a moment whenever they get work. So a *streak* is needed:
consecutive samples in which

    1. more threads are runnable (state R) than there are CPUs in their affinity masks, and
    2. these threads have waited for a CPU for more than half of the CPU time that they used since the last
       sample: their *run delay*. Time in which the kernel throttled their cgroup (CPU quota) is subtracted.

A streak of three samples over at least 10 seconds is an error; a warning where the kernel counts no run
delay. With n busy threads on c CPUs, the run delay is (n - c) / c of the CPU time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ompbind.cpuset import CpuSet, count, named, union
from ompbind.inspection.loaded_libraries import find_runtimes
from ompbind.inspection.verdict import ThreadIssue, Verdict
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.record import Record
from ompbind.severity import Severity

MIN_SAMPLES = 3
MIN_SPAN_S = 10.0
"""How many samples a streak needs, and how many seconds from its first sample to its last."""

MIN_DELAY = 0.5
"""The run delay, relative to CPU time, above which threads compete for CPUs."""


class LoadSample(Record):
    """The processes of one rank at a time; `at_s` is in seconds of a monotonic clock.

    `throttled_s` is how long the CPU quota has throttled their cgroup since it was created, summed over CPUs.
    """

    at_s: float
    processes: tuple[ProcessState, ...]
    throttled_s: float = 0.0


class Competitors(Record):
    """The threads that were runnable in one sample, and fewer CPUs that they may use."""

    cpus: CpuSet
    threads: tuple[tuple[ProcessState, ThreadState], ...]


class Streak(Record):
    """Consecutive samples with competitors that wait; `samples` is 0 if the last sample has none.

    `busy_s` and `delay_s` are the CPU time and the run delay of the competitors since the first sample. With
    `measured` the kernel counts run delays. `last` is the last sample, None before the first.
    """

    last: LoadSample | None = None
    competitors: Competitors | None = None
    began_at_s: float = 0.0
    samples: int = 0
    busy_s: float = 0.0
    delay_s: float = 0.0
    measured: bool = True

    @property
    def span_s(self) -> float:
        """Seconds from the first sample of the streak to the last."""
        return self.last.at_s - self.began_at_s if self.last and self.samples else 0.0

    @property
    def is_proof(self) -> bool:
        """Return whether the streak is long enough to be an issue."""
        return self.samples >= MIN_SAMPLES and self.span_s >= MIN_SPAN_S


def add_sample(streak: Streak, sample: LoadSample) -> Streak:
    """Return the streak with one more sample, or a new streak if this sample ends it."""
    competitors = find_competitors(sample.processes)
    if competitors is None:
        return Streak(last=sample)
    first = Streak(last=sample, competitors=competitors, began_at_s=sample.at_s, samples=1)
    if streak.last is None or not streak.samples:
        return first
    busy_s, delay_s = _compare(streak.last, sample, competitors)
    if delay_s is not None and delay_s <= MIN_DELAY * busy_s:
        return first
    return streak.replace(
        last=sample,
        competitors=competitors,
        samples=streak.samples + 1,
        busy_s=streak.busy_s + busy_s,
        delay_s=streak.delay_s + (delay_s or 0.0),
        measured=streak.measured and delay_s is not None,
    )


def find_competitors(processes: Sequence[ProcessState]) -> Competitors | None:
    """Return the threads with the fewest CPUs per thread, if these are fewer CPUs than threads; else None.

    Threads with smaller masks compete for these CPUs, so each mask is a candidate, and the union of all.
    """
    threads = [(process, thread) for process in processes for thread in process.threads]
    runnable = Counter(thread.cpus for _, thread in threads if thread.state == "R")
    candidates = {*runnable, union(thread.cpus for _, thread in threads)}
    numbers = {
        cpus: sum(number for mask, number in runnable.items() if mask <= cpus) for cpus in candidates if cpus
    }
    crowded = [cpus for cpus, number in numbers.items() if number > len(cpus)]
    if not crowded:
        return None
    cpus = max(crowded, key=lambda cpus: (numbers[cpus] / len(cpus), len(cpus), -cpus.bits))
    return Competitors(cpus=cpus, threads=tuple(pair for pair in threads if _is_in(pair[1], cpus)))


def _is_in(thread: ThreadState, cpus: CpuSet) -> bool:
    return thread.state == "R" and thread.cpus <= cpus


def _compare(before: LoadSample, after: LoadSample, competitors: Competitors) -> tuple[float, float | None]:
    """Return the CPU time and the run delay of competitors since the last sample; None: not counted.

    A thread that has started since counts from its start. While the cgroup is throttled on a CPU, all
    runnable threads there wait.
    """
    earlier = {thread.tid: thread for process in before.processes for thread in process.threads}
    busy_s = delay_s = 0.0
    for _, thread in competitors.threads:
        old = earlier.get(thread.tid)
        if thread.delay_s is None:
            return busy_s, None
        busy_s += max(0.0, (thread.busy_s or 0.0) - (old.busy_s or 0.0 if old else 0.0))
        delay_s += max(0.0, thread.delay_s - (old.delay_s or 0.0 if old else 0.0))
    throttled_s = max(0.0, after.throttled_s - before.throttled_s)
    return busy_s, max(0.0, delay_s - throttled_s * len(competitors.threads) / len(competitors.cpus))


def judge_load(verdict: Verdict, streak: Streak) -> Verdict:
    """Add the issue "oversubscribed" to a verdict if the streak is long enough."""
    if not (streak.is_proof and streak.competitors):
        return verdict
    number, cpus = len(streak.competitors.threads), streak.competitors.cpus
    text = f"{number} threads were runnable on {named('CPU', cpus)} in the last of {streak.samples} samples"
    text += f" over {streak.span_s:.0f} s, and "
    if streak.measured:
        ratio = streak.delay_s / streak.busy_s if streak.busy_s else float(number)
        text += f"waited {ratio:.1f} times as long as they ran"
    else:
        text += "the kernel does not count how long they waited (CONFIG_SCHED_INFO)"
    severity = Severity.ERROR if streak.measured else Severity.WARNING
    issue = ThreadIssue(
        code="oversubscribed",
        severity=severity,
        threads=number,
        text=f"{text}; {_name_pool(streak.competitors)}",
    )
    return verdict.add(issue)


def _name_pool(competitors: Competitors) -> str:
    """Name the process and the threads that most competitors belong to, and their planned number."""
    pools: Mapping[tuple[int, str], int] = Counter(
        (process.pid, thread.name) for process, thread in competitors.threads
    )
    pid, name = max(pools, key=lambda pool: (pools[pool], -pool[0]))
    process = next(process for process, _ in competitors.threads if process.pid == pid)
    text = f"likely pool: {count(pools[pid, name], 'thread')} {name!r} of {process.name} ({pid})"
    runtimes = dict.fromkeys(runtime.kind.label for runtime in find_runtimes(process))
    if not runtimes:
        return text
    limit = process.env.get("OMP_NUM_THREADS")
    started = f" and was executed with OMP_NUM_THREADS={limit}" if limit else ""
    return f"{text}, which has loaded {' and '.join(runtimes)}{started}"
