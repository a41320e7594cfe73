"""What `ompbind doctor` says of one thing that it looked at: how bad it is, why, and what mends it."""

from enum import StrEnum

from ompbind.record import Record

UNKNOWN = "not known"
"""What is found where no file, and nobody else, tells."""


class Grade(StrEnum):
    """How bad a finding is: nothing to do, worth knowing, or a binding would fail or not hold."""

    PROBLEM = "problem"
    NOTE = "note"
    OK = "ok"


class Finding(Record):
    """One finding: how bad it is, what it is about, and what was found `by` which check.

    `why` tells why that matters, `remedy` the command or the setting that mends it; both are "" where
    nothing is to be done. Numbers in `why` were measured.
    """

    level: Grade
    subject: str
    found: str
    why: str = ""
    remedy: str = ""
    by: str = ""


def ok(subject: str, found: str = UNKNOWN) -> Finding:
    """Make a finding that needs nobody's attention."""
    return Finding(level=Grade.OK, subject=subject, found=found)


def note(subject: str, found: str, why: str, remedy: str) -> Finding:
    """Make a finding that is worth knowing."""
    return Finding(level=Grade.NOTE, subject=subject, found=found, why=why, remedy=remedy)


def problem(subject: str, found: str, why: str, remedy: str) -> Finding:
    """Make a finding of something that must be mended."""
    return Finding(level=Grade.PROBLEM, subject=subject, found=found, why=why, remedy=remedy)
