"""What is said of the threads of a rank, as values: findings, how bad each is, and all of them together."""

from collections.abc import Iterable
from enum import StrEnum

from ompbind.record import Record


class Level(StrEnum):
    """How bad a finding is: a note is what a program may well mean to do."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


def worst(levels: Iterable[Level]) -> Level:
    """Return the worst of some levels."""
    return max(levels, key=list(Level).index, default=Level.OK)


class Finding(Record):
    """One thing that is not as planned: what kind it is, how many threads it is about, and words.

    `code` is "outside", "narrowed" (by an OpenMP runtime), "confined" (by the program itself), "stacked"
    (on a place with others while places are free), "crowded" (there are more threads than places) or
    "memory" (had by another policy).
    """

    code: str
    level: Level
    threads: int
    text: str


class Verdict(Record):
    """What is to be said of the threads of one rank, worst finding first, and how many there are.

    `outside` may run on CPUs that are not the rank's, `narrowed` on some of its CPUs although no place says
    so, `bound` on one of its places; `stacked` share a single CPU with another thread of their process.
    `runtimes` are the OpenMP runtimes of the process that has most of them, by their usual names.
    """

    findings: tuple[Finding, ...]
    summary: str
    processes: int = 0
    threads: int = 0
    outside: int = 0
    narrowed: int = 0
    bound: int = 0
    stacked: int = 0
    runtimes: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return self.findings[0].level if self.findings else Level.OK

    @property
    def text(self) -> str:
        """All findings in words; what is right where there is none."""
        return "; ".join(one.text for one in self.findings) or self.summary
