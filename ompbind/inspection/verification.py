"""What a run has seen of the threads of its ranks, and what that means for it."""

from ompbind.inspection.verdict import Level, Verdict, worst
from ompbind.record import Record

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
    def level(self) -> Level:
        """The level of the verdict."""
        return self.verdict.level if self.verdict else Level.OK


class Verified(Record):
    """What was seen of ranks, in their order, and how far they had come.

    `settled` tells that they were looked at for as long as it took, else they ended before that, or threads
    outside of their CPUs are told at once; `calm` that their threads were the same for a while at the end.
    `seen_s` is when the last look was, in seconds after the last rank was started. `strict` tells that a
    problem ends the run.
    """

    ranks: tuple[RankVerified, ...]
    settled: bool
    calm: bool
    seen_s: float
    strict: bool = False

    @property
    def level(self) -> Level:
        """The worst level of a rank."""
        return worst(one.level for one in self.ranks)

    @property
    def problems(self) -> frozenset[tuple[int, str]]:
        """The ranks that have problems, each with the code of one; with `strict` it is one not to be seen."""
        found = {
            (one.rank, finding.code)
            for one in self.ranks
            if one.verdict
            for finding in one.verdict.findings
            if finding.level is Level.PROBLEM
        }
        unproven = {(one.rank, HIDDEN) for one in self.ranks if one.hidden and not one.verdict}
        return frozenset(found | unproven if self.strict else found)
