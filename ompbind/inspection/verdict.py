"""Verdicts on the threads of ranks, and the result of `--verify`, as values."""

from ompbind.inspection.others_load import OthersLoad
from ompbind.record import Record
from ompbind.text import Severity, worst


class ThreadIssue(Record):
    """One difference from the plan: its code, its severity, the number of threads concerned, and its text.

    `code` is
    "outside" (allowed on CPUs that are not the rank's),
    "cpuset" (allowed on other CPUs because the cpuset has lost CPUs of the rank, or has changed),
    "narrowed" (restricted to a part of the rank's CPUs by an OpenMP runtime),
    "confined" (the same by the program itself, taskset or numactl),
    "unbound" (OpenMP threads that are not on places, although the binding mode has places),
    "environment" (executed with other variables than planned),
    "stacked" (too many threads on a place while another place has none),
    "crowded" (more threads than places),
    "oversubscribed" (more runnable threads than CPUs for some time),
    "others" (other processes use the CPUs),
    "throttled" (stopped by the kernel because the CPU quota was used up),
    "shared" (several ranks or processes on CPUs that they should not share) or
    "memory" (another memory policy than planned).
    `is_over`: earlier samples of the run had it, the last sample has not.
    """

    code: str
    severity: Severity
    threads: int
    text: str
    is_over: bool = False


class Verdict(Record):
    """All issues of one rank, worst first, and numbers of threads.

    `outside` threads are allowed on CPUs that are not the rank's. `narrowed` threads are restricted to a part
    of its CPUs that is not a place, `bound` threads to one of its places. `stacked` threads have a single CPU
    that is also the mask of another thread of their process. These are counts: whether they are issues
    depends on the binding mode and the cause. `runtimes` are the OpenMP runtimes of the process with the most
    runtimes. `summary` is the text if there are no issues.
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
        order = list(Severity)
        found = sorted((*issues, *self.issues), key=lambda issue: order.index(issue.severity))
        return self.replace(issues=tuple(found))

    @property
    def text(self) -> str:
        """The texts of all issues, or the summary if there are none."""
        return "; ".join(issue.text for issue in self.issues) or self.summary


HIDDEN = "hidden"
"""The code of the error, with `strict`, of ranks that were running but not visible in /proc."""


class RankVerification(Record):
    """The result of `--verify` for one rank, from its last sample.

    `seen_s` is the time of the sample in seconds after the start of the last rank. `memory` is the memory
    policy as the kernel writes it, None if it is not reported. All three are None for a rank that exited
    before the first sample. They are also None for a `hidden` rank, which was not visible in /proc. `others`
    is what other processes used of the CPUs of the rank, from the first sample to the last, and
    `busy_processes` the largest number of its own processes that were busy between two samples.
    """

    rank: int
    verdict: Verdict | None = None
    seen_s: float | None = None
    memory: str | None = None
    hidden: bool = False
    others: OthersLoad = OthersLoad()
    busy_processes: int = 0

    @property
    def severity(self) -> Severity:
        """The severity of the verdict."""
        return self.verdict.severity if self.verdict else Severity.OK


class VerificationResult(Record):
    """The result of `--verify`, with ranks in order.

    `complete` is whether the start was complete; if not, the ranks exited before, or this is an early report
    of threads outside their rank's CPUs. `stable` is whether the threads did not change any more then.
    `seen_s` is the time of the last sample in seconds after the start of the last rank, `samples` the number
    of samples, `most_threads` the largest number of threads. `strict`: an error stops the run. `ended`: this
    is the result for the whole run of `run_s` seconds, with errors that are over. `unconfirmed` are errors of
    the last sample only, and warnings of a load that was too short to be an error, each with its rank.
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

    @property
    def severity(self) -> Severity:
        """The worst severity of all ranks."""
        return worst(rank.severity for rank in self.ranks)

    @property
    def errors(self) -> frozenset[tuple[int, str]]:
        """(rank, code) of all errors; with `strict` a hidden rank is an error too."""
        found = {
            (rank.rank, issue.code)
            for rank in self.ranks
            if rank.verdict
            for issue in rank.verdict.issues
            if issue.severity is Severity.ERROR
        }
        hidden = {(rank.rank, HIDDEN) for rank in self.ranks if rank.hidden and not rank.verdict}
        return frozenset(found | hidden if self.strict else found)
