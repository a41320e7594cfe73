"""What `ompbind doctor` says of one thing that it looked at: how bad it is, why, and what mends it."""

from ompbind.record import Record
from ompbind.severity import Severity

UNKNOWN = "not known"
"""What is found where no file, and nobody else, tells."""


class HostIssue(Record):
    """One finding: how bad it is, what it is about, and what was found `by` which check.

    `why` tells why that matters, `remedy` the command or the setting that mends it; both are "" where
    nothing is to be done. Numbers in `why` were measured.
    """

    severity: Severity
    subject: str
    found: str
    why: str = ""
    remedy: str = ""
    by: str = ""


def ok(subject: str, found: str = UNKNOWN) -> HostIssue:
    """Make a finding that needs nobody's attention."""
    return HostIssue(severity=Severity.OK, subject=subject, found=found)


def note(subject: str, found: str, why: str, remedy: str) -> HostIssue:
    """Make a finding that is worth knowing."""
    return HostIssue(severity=Severity.NOTE, subject=subject, found=found, why=why, remedy=remedy)


def error(subject: str, found: str, why: str, remedy: str) -> HostIssue:
    """Make a finding of something that must be mended."""
    return HostIssue(severity=Severity.ERROR, subject=subject, found=found, why=why, remedy=remedy)
