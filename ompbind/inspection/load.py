"""Find threads that compete for too few CPUs: in a rank for some time, or of processes without a plan.

*Oversubscription* is more threads that could run than CPUs, for some time.

One sample proves nothing: threads are runnable for a moment whenever they get work. So a *streak* is needed:
consecutive samples in which

    1. more than 1.25 threads are runnable for each CPU in their affinity masks, and
    2. these threads have waited for a CPU for more than half of the CPU time that they used since the last
       sample: their *run delay*. Time in which the kernel throttled their cgroup (CPU quota) is subtracted.

A thread is runnable while it runs or waits for a CPU. So its CPU time and run delay since the last sample,
divided by the time since then, are how much of the time it was runnable. In a first sample, and where the
kernel counts no run delay, its state counts: R is runnable.

A thread also waits while other processes use its CPUs. So a thread that is not runnable all the time counts
at most in proportion to its CPU time, compared with the busiest thread: a thread that writes the output of
two busy threads waits long beside other processes, but needs a CPU rarely. What n threads on c CPUs wait for
each other is (n - c) / c of their CPU time; what they wait longer, they wait for others (`verdict`).

A streak of three samples over at least 10 seconds is an error; a warning where the kernel counts no run
delay. A shorter streak is a warning at the end of a short run.

Processes without a plan may *share* fewer CPUs than they could use: the classic "all on one core".

    shell: CPUs 0-63 --> python: CPU 0, narrowed by libgomp at load --> 64 workers: CPU 0

All workers have the mask of their parent, so that mask proves nothing. The *origin* of a mask is the last
process, from a process up its ancestors, whose parent is allowed on more CPUs: here python. What this parent
and the cpuset of the process allow is what the process could use. Whether an OpenMP runtime made the mask
smaller is read from the libraries and variables of the origin; else it was the program or a user (taskset).

Processes that wait need no CPU. So there is an error, or a warning if no runtime is the cause, only if more
threads are busy than there are CPUs.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.cpuset import EMPTY, CpuSet, count, join_words, named, union
from ompbind.inspection import diagnosis, verdict
from ompbind.inspection.rank_processes import Inspection, MaskOrigin, RankProcesses
from ompbind.inspection.verdict import CpuUsage, OthersLoad, ThreadIssue, Verdict
from ompbind.machine.read.linux_cgroup import Throttling, read_throttling
from ompbind.machine.read.root import DirectoryRoot
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.procfs.reader import read_cpu_times
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
_LEAST_SHARE = 0.05  # a thread competes if it was runnable, and is busy if it ran, for this share of the time
_ALWAYS = 0.9  # a thread that was runnable for this share of the time wants a CPU all the time
_LEAST_WAIT = 0.1  # others matter to processes without a plan if these waited for so much of the time
_SHOWN = 4  # processes that a text names


class LoadSample(Record):
    """The processes of one rank at a time of a monotonic clock.

    `throttling` is how the CPU quota has throttled their cgroup since it was created. `usage` is the CPU time
    of all CPUs, and of all ranks that share CPUs with the rank. Both are None if unknown.
    """

    at_s: float
    processes: tuple[ProcessState, ...]
    throttling: Throttling | None = None
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
    """

    process: ProcessState
    thread: ThreadState
    share: float
    busy_s: float = 0.0
    delay_s: float | None = None


class Competitors(Record):
    """Threads that compete for fewer CPUs than threads, in one sample.

    `runnable` is how many were runnable on average since the last sample, in a first sample at its moment.
    `busy_s` and `delay_s` are as in `_Load`, without the time in which their cgroup was throttled.
    """

    cpus: CpuSet
    threads: tuple[tuple[ProcessState, ThreadState], ...]
    runnable: float
    busy_s: float
    delay_s: float | None


class Streak(Record):
    """Consecutive samples with competitors that wait; `samples` is 0 if the last sample has none.

    `busy_s` and `delay_s` are summed since the first sample, `runnable_s` is the number of competitors times
    the seconds in which they were runnable. With `measured` the kernel counts run delays.
    """

    last: LoadSample | None = None
    competitors: Competitors | None = None
    began_at_s: float = 0.0
    samples: int = 0
    busy_s: float = 0.0
    delay_s: float = 0.0
    runnable_s: float = 0.0
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
        runnable = _count_runnable(inside)
        if runnable <= _MIN_THREADS * len(cpus):
            continue
        delays = [load.delay_s for load in inside if load.delay_s is not None]
        # While the cgroup is throttled on a CPU, all runnable threads there wait.
        throttled_s = throttling.throttled_s * runnable / len(cpus) if throttling else 0.0
        threads = tuple((load.process, load.thread) for load in inside if load.share >= _LEAST_SHARE)
        busy_s = sum(load.busy_s for load in inside)
        delay_s = max(0.0, sum(delays) - throttled_s) if len(delays) == len(inside) else None
        found.append(
            Competitors(cpus=cpus, threads=threads, runnable=runnable, busy_s=busy_s, delay_s=delay_s)
        )

    def rate(each: Competitors) -> tuple[float, int, int]:
        return each.runnable / len(each.cpus), len(each.cpus), -each.cpus.bits

    return max(found, key=rate, default=None)


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
        busy_s = max(0.0, (thread.busy_s or 0.0) - ((old and old.busy_s) or 0.0))
        delay_s = max(0.0, (thread.delay_s or 0.0) - ((old and old.delay_s) or 0.0))
        share = min(1.0, (busy_s + delay_s) / span_s)
        loads.append(_Load(process=process, thread=thread, share=share, busy_s=busy_s, delay_s=delay_s))
    return loads


def judge_load(judged: Verdict, streak: Streak) -> Verdict:
    """Add the issue "oversubscribed" to a verdict if the streak is long enough."""
    return judged.add(make_load_issue(streak)) if streak.is_proof else judged


def make_load_issue(streak: Streak) -> ThreadIssue:
    """Return the issue of a streak of at least three samples: an error only if it is long enough."""
    assert streak.competitors is not None
    competitors, cpus = streak.competitors, named("CPU", streak.competitors.cpus)
    samples = f"{streak.samples} samples over {streak.span_s:.{1 if streak.span_s < MIN_SPAN_S else 0}f} s"
    severity = Severity.ERROR if streak.measured and streak.is_proof else Severity.WARNING
    if streak.measured:
        runnable = streak.runnable_s / streak.span_s
        ratio = streak.delay_s / streak.busy_s if streak.busy_s else runnable
        ratio = min(ratio, runnable / len(competitors.cpus) - 1)
        text = f"on average {runnable:.1f} threads were runnable on {cpus} in {samples}, and waited for"
        text += f" each other {ratio:.1f} times as long as they ran"
    else:
        text = f"{competitors.runnable:.0f} threads were runnable on {cpus} in the last of {samples}"
        text += "; the kernel does not count how long they waited (CONFIG_SCHED_INFO)"
    pool, processes = _name_pool(competitors)
    remedy = f" (--processes-per-rank {processes}, or -t 1)" if processes > 1 else ""
    text, threads = f"{text}; {pool}; use no more threads than CPUs{remedy}", len(competitors.threads)
    return ThreadIssue(code="oversubscribed", severity=severity, threads=threads, text=text)


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


def count_busy(process: ProcessState, before: Sequence[ProcessState], span_s: float) -> int:
    """Count the busy threads of a process that was read `span_s` seconds ago as `before`, if at all.

    A thread is busy if it was running or waiting for a CPU at both times, or has used CPU time in between.
    """
    earlier = {thread.tid: thread for state in before for thread in state.threads}
    pairs = [(thread, earlier.get(thread.tid, thread)) for thread in process.threads]
    least_s = _LEAST_SHARE * span_s
    return sum(
        now.state == old.state == "R" or (old is not now and (now.busy_s or 0) - (old.busy_s or 0) >= least_s)
        for now, old in pairs
    )


User = tuple[ProcessState, CpuSet, MaskOrigin]
"""A process without a plan, all the CPUs of its threads, the origin of its mask."""


def find_shared_cpus(users: Iterable[tuple[User, int]]) -> Iterator[ThreadIssue]:
    """Yield an issue for each set of CPUs that several processes share although they could use more.

    Each process has its number of busy threads.
    """
    by_cpus: dict[CpuSet, list[tuple[User, int]]] = {}
    for user, number in users:
        process, cpus, origin = user
        if cpus < origin.allowed and not process.is_kernel_thread:
            by_cpus.setdefault(cpus, []).append((user, number))
    for cpus, sharing in by_cpus.items():
        busy = [user for user, number in sharing if number]
        if len(busy) > 1 and sum(number for _, number in sharing) > len(cpus):
            yield _make_issue(cpus, busy, is_short=True)
        elif len(sharing) > 1 and len(cpus) == 1:
            yield _make_issue(cpus, [user for user, _ in sharing], is_short=False)


def _make_issue(cpus: CpuSet, sharing: Sequence[User], *, is_short: bool) -> ThreadIssue:
    origins = {origin.process.pid: origin.process for _, _, origin in sharing}
    first, allowed = next(iter(origins.values())), named("CPU", sharing[0][2].allowed)
    by_runtime = next(filter(None, map(_explain_runtime, sharing)), "")
    masks = [thread.cpus for thread in first.threads]
    cause = by_runtime or f"{first.name} ({first.pid}): {diagnosis.explain_without_variable(first, masks)}"
    who = f"{len(sharing)} {'busy ' if is_short else ''}processes are restricted to {named('CPU', cpus)}"
    text = f"{who}, although {allowed} are allowed: {cause}"
    if is_short:
        effect = "gives it the CPUs of a plan" if len(origins) == 1 else "gives each its own CPUs"
        pids = " ".join([*map(str, list(origins)[:_SHOWN]), *(["PID..."] if len(origins) > _SHOWN else [])])
        doubt = "" if by_runtime else "if this is not intended, "
        text += f"; {doubt}'ompbind rebind {pids}' {effect}"
        text += ", and a start with 'ompbind run' prevents it" if by_runtime else ""
    names = [f"{process.name} ({process.pid})" for process, _, _ in sharing[:_SHOWN]]
    names += [f"{len(sharing) - _SHOWN} more"] if len(sharing) > _SHOWN else []
    text += f"; the processes are {join_words(names)}"
    severity = (Severity.ERROR if by_runtime else Severity.WARNING) if is_short else Severity.NOTE
    threads = sum(len(process.threads) for process, _, _ in sharing)
    return ThreadIssue(code="shared", severity=severity, threads=threads, text=text)


def _explain_runtime(user: User) -> str:
    """Return how a runtime made the mask of the origin smaller; "" if none did.

    A program may have set the variables itself: then only processes that it has started since show them.
    """
    process, _, mask = user
    origin = mask.process
    masks = [(origin.initial_thread or origin.threads[0]).cpus]
    cause = diagnosis.explain_narrowing(origin, masks)
    if not cause and diagnosis.find_runtimes(origin):
        cause = diagnosis.explain_narrowing(process, masks)
    return f"in {origin.name} ({origin.pid}) {cause}" if cause else ""


# The samples of all groups of an inspection. Throttling is judged for each cgroup.

Streaks = Mapping[tuple[str | None, int | None, int], Streak]
"""The streak of each group, by run ID, rank and PID of the first process."""


def read_load(processes: Sequence[ProcessState], at_s: float) -> LoadSample:
    """Make a sample of processes that were just read."""
    throttling = read_throttling(DirectoryRoot("/"), str(processes[0].pid)) if processes else None
    return LoadSample(at_s=at_s, processes=tuple(processes), throttling=throttling)


def add_load(streaks: Streaks, inspection: Inspection) -> tuple[Streaks, Inspection]:
    """Add an inspection to the streaks of its groups; return it with the issues that follow."""
    now, cpu_times, root = time.monotonic(), read_cpu_times(), DirectoryRoot("/")
    found, groups, throttled = {}, list(inspection.groups), []
    issues, users = list(inspection.shared_issues), list[tuple[User, int]]()
    by_cgroup: dict[str | None, Throttling | None] = {}  # equal cgroups are read once
    for cpus, positions in verdict.find_sharing([group.cpus for group in inspection.groups]):
        sharing = [inspection.groups[position] for position in positions]
        times = {process.pid: process.times_s for group in sharing for process in group.processes}
        usage = verdict.make_cpu_usage(now, cpu_times, times)
        before, delay_s = Streak(), 0.0
        for position, group in zip(positions, sharing, strict=True):
            pid = group.first.pid
            cgroup = root.read(f"proc/{pid}/cgroup")
            if cgroup not in by_cgroup:
                by_cgroup[cgroup] = read_throttling(root, str(pid))
            before, throttling = streaks.get((group.run_id, group.rank, pid), Streak()), by_cgroup[cgroup]
            sample = LoadSample(at_s=now, processes=group.processes, throttling=throttling, usage=usage)
            last = before.last or LoadSample(at_s=now, processes=())
            if group.origin and not group.expected:
                busy = count_busy(group.first, last.processes, now - last.at_s)
                users.append(((group.first, group.cpus, group.origin), busy))
            delay_s += sample.delay_s - last.delay_s
            if since := sample.throttled_since(last):
                throttled.append((group, since))
            streak = found[group.run_id, group.rank, pid] = add_sample(before, sample)
            groups[position] = group.replace(verdict=judge_load(group.verdict, streak))
        if before.last and before.last.usage:
            load = verdict.measure_others(before.last.usage, usage, cpus)
            if any(group.expected for group in sharing) or delay_s > _LEAST_WAIT * load.span_s:
                threads = sum(group.verdict.threads for group in sharing)
                issues += find_others(load, f", while {_name_groups(sharing)} ran", threads)
    issues += [*find_shared_cpus(users), *find_throttled(throttled)]
    return found, inspection.replace(groups=tuple(groups), shared_issues=verdict.sort_issues(issues))


def find_others(load: OthersLoad, meanwhile: str, threads: int) -> Iterator[ThreadIssue]:
    """Yield a warning if other processes used much of the CPUs of ranks with so many threads."""
    if load.is_much:
        text = f"{load.text} in {load.span_s:.{1 if load.span_s < 10 else 0}f} s{meanwhile}"
        yield ThreadIssue(code="others", severity=Severity.WARNING, threads=threads, text=text)


def find_throttled(measured: Iterable[tuple[RankProcesses, Throttling]]) -> Iterator[ThreadIssue]:
    """Yield a warning for each cgroup that was throttled.

    `measured` are groups of processes, each with the throttling of its cgroup between two samples.
    """
    by_cgroup: dict[str, list[tuple[RankProcesses, Throttling]]] = {}
    for group, throttling in measured:
        if throttling.throttled_periods:
            by_cgroup.setdefault(throttling.cgroup, []).append((group, throttling))
    for throttled in by_cgroup.values():
        groups = [group for group, _ in throttled]
        text = f"the CPU quota of the cgroup throttled {_name_groups(groups)} in {throttled[0][1]}"
        text += ": use fewer ranks, threads or CPUs, or raise the quota"
        threads = sum(group.verdict.threads for group in groups)
        yield ThreadIssue(code="throttled", severity=Severity.WARNING, threads=threads, text=text)


def _name_groups(groups: Sequence[RankProcesses]) -> str:
    """Name groups of processes: "ranks 0-1 of run a and 2 processes"."""
    ranks: dict[str | None, list[int]] = {}
    for group in groups:
        if group.rank is not None:
            ranks.setdefault(group.run_id, []).append(group.rank)
    names = [f"{named('rank', numbers)} of run {run_id}" for run_id, numbers in ranks.items()]
    others = [group.first for group in groups if group.rank is None]
    if len(others) == 1:
        names.append(f"process {others[0].pid} ({others[0].name})")
    elif others:
        names.append(f"{len(others)} processes")
    return " and ".join(names)


def is_suspicious(streaks: Streaks) -> bool:
    """Return whether a group had more runnable threads than CPUs in its last sample."""
    return any(streak.samples for streak in streaks.values())
