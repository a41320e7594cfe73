"""Verdicts on the threads of ranks, what other processes use of their CPUs, and the result of `--verify`.

How much CPU time other processes use on the CPUs of ranks:

    time of all processes on these CPUs (/proc/stat)  -  time of the ranks' processes  =  time of others

/proc/stat says how long a CPU was in processes, not in which. /proc/PID/stat says how long a process ran, not
on which CPU. So ranks that share CPUs are measured together. The time of a process that has exited is in the
stat file of the process that waited for it. No process has interrupts and stolen time.
"""

import os
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum

from ompbind.cpuset import EMPTY, CpuSet, named
from ompbind.errors import LaunchError
from ompbind.procfs.parsers import CpuTimes
from ompbind.procfs.reader import TICKS_PER_S
from ompbind.record import Record
from ompbind.text import Severity

_LEAST_SHARE, _LEAST_CPUS = 0.1, 0.5
"""How much others use at least to be mentioned: a share of the CPUs, or of many CPUs the time of so many."""


class CpuUsage(Record):
    """CPU time in seconds, at a time of a monotonic clock: of processes together by CPU, and of the ranks.

    `processes` has (its own time, the time of its reaped children) of each process of the ranks, by PID.
    """

    at_s: float
    cpus: Mapping[int, float]
    processes: Mapping[int, tuple[float, float]]

    def used_since(self, before: "CpuUsage", cpus: CpuSet) -> float:
        """Return how long some CPUs were in processes since an earlier reading."""
        return sum(self.cpus[cpu] - before.cpus[cpu] for cpu in cpus)


class OthersLoad(Record):
    """CPU time that other processes used on some CPUs: `used_s` in `span_s` seconds.

    The kernel counts in clock ticks, so in a short time `used_s` may be below 0.
    """

    cpus: CpuSet = EMPTY
    span_s: float = 0.0
    used_s: float = 0.0

    @property
    def share(self) -> float:
        """The part of the CPUs that others used, at most 1."""
        return min(1.0, self.used_s / (self.span_s * len(self.cpus))) if self.span_s and self.cpus else 0.0

    @property
    def is_much(self) -> bool:
        """Whether others used so much that ranks may be slower."""
        return self.share >= min(_LEAST_SHARE, _LEAST_CPUS / max(1, len(self.cpus)))

    @property
    def text(self) -> str:
        """The load as a sentence: "other processes used 61 % of CPUs 0-1"."""
        time_of = f"the time of {self.share * len(self.cpus):.1f} CPUs on"
        used = f"{100 * self.share:.0f} % of" if self.share >= _LEAST_SHARE else time_of
        return f"other processes used {used} {named('CPU', self.cpus)}"

    def __add__(self, other: "OthersLoad") -> "OthersLoad":
        """Return the load of both spans; the CPUs are equal, or one of both is empty."""
        cpus, span_s, used_s = self.cpus | other.cpus, self.span_s + other.span_s, self.used_s + other.used_s
        return OthersLoad(cpus=cpus, span_s=span_s, used_s=used_s)


def make_cpu_usage(
    at_s: float, times: Mapping[int | None, CpuTimes], processes: Mapping[int, tuple[float, float]]
) -> CpuUsage:
    """Make a reading of the times of CPUs, and of processes, that were just read."""
    cpus = {cpu: each.processes / TICKS_PER_S for cpu, each in times.items() if cpu is not None}
    return CpuUsage(at_s=at_s, cpus=cpus, processes=processes)


def read_own_usage(times: Mapping[int | None, CpuTimes]) -> CpuUsage:
    """Read the time of this process and of all that it started; the times of CPUs were just read."""
    own = os.times()
    processes = {os.getpid(): (own.user + own.system, own.children_user + own.children_system)}
    return make_cpu_usage(time.monotonic(), times, processes)


def measure_others(before: CpuUsage, after: CpuUsage, cpus: CpuSet) -> OthersLoad:
    """Return what other processes used of some CPUs; nothing if it is unknown.

    A process that has started in between counts from its start. A process that has exited is in the time of
    another process, if that waited for it: then its time until `before` is there too, and is subtracted.
    """
    if not all(cpu in before.cpus and cpu in after.cpus for cpu in cpus):
        return OthersLoad()
    reaped_s = own_s = 0.0
    for pid, (now_s, now_reaped_s) in after.processes.items():
        old_s, old_reaped_s = before.processes.get(pid, (0.0, 0.0))
        own_s += now_s - old_s
        reaped_s += now_reaped_s - old_reaped_s
    exited_s = sum(sum(times) for pid, times in before.processes.items() if pid not in after.processes)
    own_s += max(0.0, reaped_s - exited_s)
    used_s = after.used_since(before, cpus) - own_s
    return OthersLoad(cpus=cpus, span_s=after.at_s - before.at_s, used_s=used_s)


def find_sharing(cpus: Sequence[CpuSet]) -> list[tuple[CpuSet, tuple[int, ...]]]:
    """Group sets of CPUs that overlap: return the union of each group, and the positions of its sets."""
    groups: list[tuple[CpuSet, tuple[int, ...]]] = []
    for position, whole in enumerate(cpus):
        members: tuple[int, ...] = (position,)
        for group in [group for group in groups if group[0] & whole]:
            groups.remove(group)
            whole, members = whole | group[0], (*group[1], *members)
        groups.append((whole, tuple(sorted(members))))
    return groups


class ThreadIssue(Record):
    """One difference from the plan: its code, its severity, the number of threads concerned, and its text.

    `docs/verify.md` has a table of the codes.
    """

    code: str
    severity: Severity
    threads: int
    text: str


def sort_issues(issues: Sequence[ThreadIssue]) -> tuple[ThreadIssue, ...]:
    """Return issues in their order, but the worst first."""
    return tuple(issue for severity in Severity for issue in issues if issue.severity is severity)


class Verdict(Record):
    """All issues of one rank, worst first, and numbers of threads, which are issues or not.

    `outside` threads are allowed on CPUs that are not the rank's. `narrowed` threads are restricted to a part
    of its CPUs that is not a place, `bound` threads to one of its places. `stacked` threads have a single CPU
    that is also the mask of another thread of their process. `runtimes` are the runtimes of the process with
    the most. `summary` is the text if there are no issues.
    """

    issues: tuple[ThreadIssue, ...]
    summary: str
    processes: int = 0
    threads: int = 0
    outside: int = 0
    narrowed: int = 0
    bound: int = 0
    stacked: int = 0
    runtimes: tuple[str, ...] = ()

    @property
    def severity(self) -> Severity:
        """The severity of the worst issue."""
        return self.issues[0].severity if self.issues else Severity.OK

    def add(self, *issues: ThreadIssue) -> "Verdict":
        """Return the verdict with more issues, worst first."""
        return self.replace(issues=sort_issues((*issues, *self.issues)))

    @property
    def text(self) -> str:
        """The texts of all issues, or the summary if there are none."""
        return "; ".join(issue.text for issue in self.issues) or self.summary


class State(StrEnum):
    """What is known of a rank, or of a run, worst first: NOT_SEEN if nothing could be read of it."""

    ERROR = "error"
    NOT_SEEN = "not seen"
    OK = "ok"


NO_RANK = "no rank was started"  # why nothing was verified


class Unseen(StrEnum):
    """Why a rank was not seen."""

    HIDDEN = "/proc does not show its threads"
    NOT_STARTED = "it was not started"


class RankVerification(Record):
    """The result of `--verify` for one rank, from its last sample.

    `seen_s` is the time of the sample in seconds after the start of the last rank. `memory` is the memory
    policy as the kernel writes it. All are None for a rank that was not sampled: because it is `unseen`, or
    because this `attempt` exited before the first sample. Its mask was read back at its start then. `past`
    are errors that the last sample did not have, each with its attempt. `others` is what other processes used
    of the CPUs of the rank from the first sample to the last, `busy_processes` the largest number of its busy
    processes between two samples.
    """

    rank: int
    attempt: int = 1
    verdict: Verdict | None = None
    seen_s: float | None = None
    memory: str | None = None
    unseen: Unseen | None = None
    past: tuple[tuple[int, ThreadIssue], ...] = ()
    others: OthersLoad = OthersLoad()
    busy_processes: int = 0

    @property
    def errors(self) -> tuple[ThreadIssue, ...]:
        """The errors of the verdict."""
        issues = self.verdict.issues if self.verdict else ()
        return tuple(issue for issue in issues if issue.severity is Severity.ERROR)

    @property
    def state(self) -> State:
        """An error counts to the end."""
        if self.errors or self.past:
            return State.ERROR
        return State.NOT_SEEN if self.unseen else State.OK


class VerificationResult(Record):
    """The result of `--verify`, with ranks in order.

    `complete`: the start was complete; else the ranks exited before, or this is an early report of threads
    outside their rank's CPUs. `stable`: the threads did not change any more then. `seen_s` is the time of the
    last sample after the start of the last rank, `most_threads` the largest number of threads. `strict`: an
    error stops the run, and has `stopped` it. `ended`: this is the result for the whole run of `run_s`
    seconds. `unconfirmed` are errors of the last sample only, and warnings of a short load, by rank. `failed`
    says how the first rank that failed exited, "" for none. `failure` is why no rank was started, or "".
    """

    ranks: tuple[RankVerification, ...]
    complete: bool
    stable: bool
    seen_s: float
    samples: int = 0
    most_threads: int = 0
    strict: bool = False
    ended: bool = False
    run_s: float = 0.0
    unconfirmed: tuple[tuple[int, ThreadIssue], ...] = ()
    stopped: bool = False
    failed: str = ""
    failure: str = ""

    @property
    def state(self) -> State:
        """The worst state of the ranks that were started."""
        states = {rank.state for rank in self.ranks if rank.unseen is not Unseen.NOT_STARTED}
        return next((state for state in State if state in states), State.NOT_SEEN)

    def find(self, unseen: Unseen) -> list[int]:
        """Return the ranks that were not seen for a reason."""
        return [rank.rank for rank in self.ranks if rank.unseen is unseen]

    @property
    def reason(self) -> str:
        """Why ranks that should run were not seen, "" if all were."""
        hidden = self.find(Unseen.HIDDEN)
        return f"/proc does not show the threads of {named('rank', hidden)}" if hidden else self.failure

    @property
    def errors(self) -> frozenset[tuple[int, str]]:
        """(rank, code) of all errors that are not over."""
        return frozenset((rank.rank, issue.code) for rank in self.ranks for issue in rank.errors)

    @property
    def violation(self) -> LaunchError | None:
        """The error of a `strict` run: not all ranks are proven to have run as planned."""
        if not self.strict or self.state is State.OK:
            return None
        text, hint = self.reason, "mount a /proc that shows all ranks"
        if wrong := [rank.rank for rank in self.ranks if rank.state is State.ERROR]:
            text = f"the threads of {named('rank', wrong)} did not run as planned"
            hint = "the messages above show the reasons"
        return LaunchError(f"--verify=strict: {text}", hint=f"{hint}; with --verify alone the run goes on")


def make_unseen(failure: str, *, strict: bool) -> VerificationResult:
    """Return the result of a run without any rank that was seen."""
    return VerificationResult(
        ranks=(), complete=False, stable=False, seen_s=0.0, strict=strict, ended=True, failure=failure
    )
