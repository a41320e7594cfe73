"""What is said of the threads of a rank, and of all ranks of a run, as values: findings and verdicts."""

from ompbind.record import Record
from ompbind.severity import Severity, worst


class ThreadIssue(Record):
    """One thing that is not as planned: what kind it is, how many threads it is about, and words.

    `code` is "outside", "narrowed" (by an OpenMP runtime), "confined" (by the program itself), "stacked"
    (on a place with others while places are free), "crowded" (there are more threads than places) or
    "memory" (had by another policy).
    """

    code: str
    severity: Severity
    threads: int
    text: str


class Verdict(Record):
    """What is to be said of the threads of one rank, worst finding first, and how many there are.

    `outside` may run on CPUs that are not the rank's, `narrowed` on some of its CPUs although no place says
    so, `bound` on one of its places; `stacked` share a single CPU with another thread of their process.
    `runtimes` are the OpenMP runtimes of the process that has most of them, by their usual names.
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
        """The level of the worst finding."""
        return self.issues[0].severity if self.issues else Severity.OK

    @property
    def text(self) -> str:
        """All findings in words; what is right where there is none."""
        return "; ".join(one.text for one in self.issues) or self.summary


HIDDEN = "hidden"
"""The code of the problem, with `strict`, of ranks that ran and could not be looked at."""


class RankVerified(Record):
    """What was seen of one rank: a verdict, when, in seconds after the last rank was started, and its memory.

    These are None for a rank that ended before it could be looked at, or whose threads cannot be seen:
    it was `hidden` then. The memory policy, as the kernel writes it, is None also where nobody tells it.
    """

    rank: int
    verdict: Verdict | None = None
    seen_s: float | None = None
    memory: str | None = None
    hidden: bool = False

    @property
    def severity(self) -> Severity:
        """The level of the verdict."""
        return self.verdict.severity if self.verdict else Severity.OK


class Verified(Record):
    """What was seen of ranks, in their order, and how far they had come.

    `settled` tells that they were looked at for as long as it took, else they ended before that, or threads
    outside of their CPUs are told at once; `stable` that their threads were the same for a while at the end.
    `seen_s` is when the last look was, in seconds after the last rank was started. `strict` tells that a
    problem ends the run.
    """

    ranks: tuple[RankVerified, ...]
    settled: bool
    stable: bool
    seen_s: float
    strict: bool = False

    @property
    def severity(self) -> Severity:
        """The worst level of a rank."""
        return worst(one.severity for one in self.ranks)

    @property
    def problems(self) -> frozenset[tuple[int, str]]:
        """The ranks that have problems, each with the code of one; with `strict` it is one not to be seen."""
        found = {
            (one.rank, issue.code)
            for one in self.ranks
            if one.verdict
            for issue in one.verdict.issues
            if issue.severity is Severity.ERROR
        }
        unproven = {(one.rank, HIDDEN) for one in self.ranks if one.hidden and not one.verdict}
        return frozenset(found | unproven if self.strict else found)
