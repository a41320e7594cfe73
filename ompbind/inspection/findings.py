"""What the samples of one run have found: which issues are confirmed, reported, or over."""

from collections.abc import Callable

from ompbind.inspection.verdict import ThreadIssue, VerificationResult
from ompbind.text import Severity

_LOAD = "oversubscribed"
"""The code of the issue that several samples have confirmed, and that comes and goes with the load."""

_Key = tuple[int, str, Severity]
"""An issue: its rank, its code and its severity. Numbers in its text may change from sample to sample."""


class Findings:
    """The issues of one run: which are confirmed, which were reported, and which are over.

    `unconfirmed` are issues that only the last sample had, each with its rank.
    """

    def __init__(self) -> None:
        self.unconfirmed: tuple[tuple[int, ThreadIssue], ...] = ()
        self._last: frozenset[_Key] = frozenset()
        self._errors: dict[tuple[int, str], ThreadIssue] = {}  # all errors so far
        self._reported_errors: frozenset[tuple[int, str]] | None = None
        self._reported: frozenset[_Key] = frozenset()  # all issues

    def confirm(self, verified: VerificationResult, *, at_once: bool) -> VerificationResult:
        """Return the result with the issues that the last sample had too, or with all `at_once`."""
        found = _list_issues(verified)
        kept = {key for key, _ in found if at_once or key in self._last or key[1] == _LOAD}
        self._last = frozenset(key for key, _ in found)
        self.unconfirmed = tuple((key[0], issue) for key, issue in found if key not in kept)
        return select_issues(verified, lambda rank, issue: (rank, issue.code, issue.severity) in kept)

    def should_report(self, verified: VerificationResult) -> bool:
        """Return whether a result differs from the last one reported, and remember it as reported.

        It differs if an error has come or gone, or if any issue is new. Oversubscription is reported once.
        """
        issues = dict(_list_issues(verified))
        errors = frozenset((rank, code) for rank, code in verified.errors if code != _LOAD)
        differs = errors != self._reported_errors or not issues.keys() <= self._reported
        self._reported_errors = errors
        self._reported |= issues.keys()
        for (rank, code, severity), issue in issues.items():
            if severity is Severity.ERROR:
                self._errors[rank, code] = issue
        return differs

    def add_past_errors(self, verified: VerificationResult) -> VerificationResult:
        """Return the result with all errors that were reported and are over."""
        ranks = []
        for checked in verified.ranks:
            if checked.verdict:
                codes = {issue.code for issue in checked.verdict.issues}
                past = (
                    issue.replace(text=f"{issue.text} (not in the last sample)", is_over=True)
                    for (rank, code), issue in self._errors.items()
                    if rank == checked.rank and code not in codes
                )
                checked = checked.replace(verdict=checked.verdict.add(*past))
            ranks.append(checked)
        return verified.replace(ranks=tuple(ranks))


def _list_issues(verified: VerificationResult) -> list[tuple[_Key, ThreadIssue]]:
    return [
        ((checked.rank, issue.code, issue.severity), issue)
        for checked in verified.ranks
        if checked.verdict
        for issue in checked.verdict.issues
    ]


def select_issues(
    verified: VerificationResult, is_kept: Callable[[int, ThreadIssue], bool]
) -> VerificationResult:
    """Return a result with some of its issues."""
    ranks = []
    for checked in verified.ranks:
        if verdict := checked.verdict:
            kept = tuple(issue for issue in verdict.issues if is_kept(checked.rank, issue))
            checked = checked.replace(verdict=verdict.replace(issues=kept))
        ranks.append(checked)
    return verified.replace(ranks=tuple(ranks))
