"""The load of all groups of an inspection: on CPUs that several share, and under one CPU quota.

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

from ompbind.cpuset import CpuSet, named
from ompbind.inspection import diagnosis, verdict
from ompbind.inspection.load import (
    LEAST_SHARE,
    SHOWN,
    LoadSample,
    Streak,
    add_sample,
    find_others,
    make_load_issue,
    name_processes,
)
from ompbind.inspection.rank_processes import Inspection, MaskOrigin, RankProcesses
from ompbind.inspection.verdict import ThreadIssue
from ompbind.machine.read.linux_cgroup import Throttling, read_throttling
from ompbind.machine.read.root import DirectoryRoot
from ompbind.procfs.process_state import ProcessState
from ompbind.procfs.reader import read_cpu_times
from ompbind.record import Record
from ompbind.text import Severity

_LEAST_WAIT = 0.1  # others matter to processes without a plan if these waited for so much of the time


def count_busy(process: ProcessState, before: Sequence[ProcessState], span_s: float) -> int:
    """Count the busy threads of a process that was read `span_s` seconds ago as `before`, if at all.

    A thread is busy if it was running or waiting for a CPU at both times, or has used CPU time in between.
    """
    earlier = {thread.tid: thread for state in before for thread in state.threads}
    pairs = [(thread, earlier.get(thread.tid, thread)) for thread in process.threads]
    least_s = LEAST_SHARE * span_s
    return sum(
        now.state == old.state == "R" or (old is not now and now.busy_s - old.busy_s >= least_s)
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
        pids = " ".join([*map(str, list(origins)[:SHOWN]), *(["PID..."] if len(origins) > SHOWN else [])])
        doubt = "" if by_runtime else "if this is not intended, "
        text += f"; {doubt}'ompbind rebind {pids}' {effect}"
        text += ", and a start with 'ompbind run' prevents it" if by_runtime else ""
    text += f"; {name_processes(process for process, _, _ in sharing)}"
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


_Key = tuple[str | None, int | None, int] | CpuSet | str
"""A group, by run ID, rank and PID of its first process; groups that share CPUs; groups in one cgroup."""

Streaks = Mapping[_Key, Streak]  # the load of groups so far, each alone and together


class _GroupLoad(Record):
    """A group in one inspection, with its cgroup, the sample before, and its streak with the new sample."""

    group: RankProcesses
    cgroup: str
    before: LoadSample
    sample: LoadSample
    streak: Streak

    @property
    def key(self) -> _Key:
        return self.group.run_id, self.group.rank, self.group.first.pid


def add_load(streaks: Streaks, inspection: Inspection) -> tuple[Streaks, Inspection]:
    """Add an inspection to the streaks of its groups; return it with the issues that follow."""
    now, cpu_times = time.monotonic(), read_cpu_times()
    loads, groups, users = _add_groups(streaks, inspection.groups, now), [], list[tuple[User, int]]()
    found: dict[_Key, Streak] = {load.key: load.streak for load in loads}
    for load in loads:
        group, before = load.group, load.before
        is_own = not (group.expected and group.expected.is_unbound)
        issues = [make_load_issue(load.streak, is_own=is_own)] if load.streak.is_proof else []
        groups.append(group.replace(verdict=group.verdict.add(*issues)))
        if group.origin and not group.expected:
            busy = count_busy(group.first, before.processes, now - before.at_s)
            users.append(((group.first, group.cpus, group.origin), busy))
    restricted = {cpus for (_, cpus, origin), _ in users if cpus < origin.allowed}
    issues = [*inspection.shared_issues, *find_shared_cpus(users)]
    since = ((load.group, load.sample.throttled_since(load.before)) for load in loads)
    issues += find_throttled((group, throttling) for group, throttling in since if throttling)
    together: dict[_Key, tuple[int, ...]] = dict(verdict.find_sharing([load.group.cpus for load in loads]))
    for cgroup in {load.cgroup for load in loads if load.sample.quota}:
        positions = tuple(i for i, load in enumerate(loads) if load.cgroup == cgroup)
        together |= {} if positions in together.values() else {cgroup: positions}
    for key, positions in together.items():
        sharing = [loads[position] for position in positions]
        last = streaks.get(key, Streak())
        processes = tuple(process for load in sharing for process in load.group.processes)
        times = {process.pid: process.times_s for process in processes}
        sample = sharing[0].sample.replace(
            processes=processes, usage=verdict.make_cpu_usage(now, cpu_times, times)
        )
        if len({load.cgroup for load in sharing}) > 1:
            sample = sample.replace(throttling=None, quota=None)
        streak = found[key] = add_sample(last, sample)
        if streak.competitors and (len(sharing) == 1 or streak.competitors.cpus in restricted):
            found[key] = Streak(last=sample)  # its own streak, or the issue "shared", has it
        issues += _find_together(found[key], sharing)
        if isinstance(key, CpuSet):
            issues += _find_others(last.last, sample, key, sharing)
    return found, inspection.replace(groups=tuple(groups), shared_issues=verdict.sort_issues(issues))


def _add_groups(streaks: Streaks, groups: Sequence[RankProcesses], now: float) -> list[_GroupLoad]:
    """Return each group with its streak; equal cgroups are read once."""
    root, loads, throttlings = DirectoryRoot("/"), [], dict[str, Throttling | None]()
    for group in groups:
        pid = group.first.pid
        cgroup = root.read(f"proc/{pid}/cgroup") or ""
        if cgroup not in throttlings:
            throttlings[cgroup] = read_throttling(root, str(pid))
        sample = LoadSample(
            at_s=now, processes=group.processes, throttling=throttlings[cgroup], quota=group.limits.quota
        )
        streak = streaks.get((group.run_id, group.rank, pid), Streak())
        before = streak.last or LoadSample(at_s=now, processes=())
        streak = add_sample(streak, sample)
        loads.append(_GroupLoad(group=group, cgroup=cgroup, before=before, sample=sample, streak=streak))
    return loads


def _find_together(streak: Streak, loads: Sequence[_GroupLoad]) -> Iterator[ThreadIssue]:
    """Yield a warning if groups have too many threads only together."""
    if streak.competitors and streak.is_proof and not any(load.streak.is_proof for load in loads):
        pids = {process.pid for process, _ in streak.competitors.threads}
        groups = [load.group for load in loads]
        busy = [group for group in groups if any(process.pid in pids for process in group.processes)]
        issue = make_load_issue(streak, is_own=False)
        yield issue.replace(text=f"{_name_groups(busy)}: {issue.text}")


def _find_others(
    before: LoadSample | None, sample: LoadSample, cpus: CpuSet, loads: Sequence[_GroupLoad]
) -> Iterator[ThreadIssue]:
    """Yield a warning if other processes used CPUs of groups: of ranks, or of processes that waited."""
    if before and before.usage and sample.usage:
        others = verdict.measure_others(before.usage, sample.usage, cpus)
        groups, delay_s = [load.group for load in loads], sample.delay_s - before.delay_s
        if any(group.expected for group in groups) or delay_s > _LEAST_WAIT * others.span_s:
            threads = sum(group.verdict.threads for group in groups)
            yield from find_others(others, f", while {_name_groups(groups)} ran", threads)


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
