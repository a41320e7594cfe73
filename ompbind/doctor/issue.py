"""The result of a check of `ompbind doctor`: its severity, the reason and the remedy."""

from ompbind.record import Record
from ompbind.text import Severity

UNKNOWN = "not known"
"""The text of a result where the system does not provide the fact."""


class HostIssue(Record):
    """An issue, or with severity OK a fact worth a line; `check_name` is the check that found it.

    `why` is the reason why it matters, `remedy` a command or setting that fixes it; both are "" for OK.
    Numbers are facts about this machine or versions, never results of other machines.
    """

    severity: Severity
    subject: str
    found: str
    why: str = ""
    remedy: str = ""
    check_name: str = ""


def ok(subject: str, found: str = UNKNOWN) -> HostIssue:
    """Make a result that needs no attention."""
    return HostIssue(severity=Severity.OK, subject=subject, found=found)


def note(subject: str, found: str, why: str, remedy: str) -> HostIssue:
    """Make an issue that is worth knowing."""
    return HostIssue(severity=Severity.NOTE, subject=subject, found=found, why=why, remedy=remedy)


def error(subject: str, found: str, why: str, remedy: str) -> HostIssue:
    """Make an issue that must be fixed."""
    return HostIssue(severity=Severity.ERROR, subject=subject, found=found, why=why, remedy=remedy)
