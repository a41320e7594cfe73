"""Which issues of a verified run are confirmed, which were reported, and which are over."""

from ompbind.inspection.verdict import RankVerification, ThreadIssue, VerificationResult
from ompbind.text import Severity

_LOAD = "oversubscribed"
"""The code of the issue that several samples have confirmed, and that comes and goes with the load."""

_Key = tuple[int, str, Severity]
"""An issue: its rank, its code and its severity. Numbers in its text may change from sample to sample."""


class Findings:
    """The issues of one run; `unconfirmed` is whether only the last sample had some of them."""

    def __init__(self) -> None:
        self.unconfirmed = False
        self._last: frozenset[_Key] = frozenset()
        self._errors: dict[tuple[int, str], ThreadIssue] = {}  # all errors so far
        self._reported_errors: frozenset[tuple[int, str]] | None = None
        self._reported: frozenset[_Key] = frozenset()  # all issues

    def confirm(self, verified: VerificationResult, *, at_once: bool) -> VerificationResult:
        """Return the result with the issues that the last sample had too, or with all `at_once`."""
        found = _list_issues(verified)
        kept = frozenset(key for key in found if at_once or key in self._last or key[1] == _LOAD)
        self._last, self.unconfirmed = found, kept != found
        ranks = (_keep(checked, kept) for checked in verified.ranks)
        return verified.replace(ranks=tuple(ranks))

    def should_report(self, verified: VerificationResult) -> bool:
        """Return whether a result differs from the last one reported, and remember it as reported.

        It differs if an error has come or gone, or if any issue is new. Oversubscription is reported once.
        """
        issues = _list_issues(verified)
        errors = frozenset((rank, code) for rank, code in verified.errors if code != _LOAD)
        differs = errors != self._reported_errors or not issues <= self._reported
        self._reported_errors = errors
        self._reported |= issues
        for checked in verified.ranks:
            for issue in checked.verdict.issues if checked.verdict else ():
                if issue.severity is Severity.ERROR:
                    self._errors[checked.rank, issue.code] = issue
        return differs

    def add_past_errors(self, verified: VerificationResult) -> VerificationResult:
        """Return the result with all errors that were reported and are over."""
        return verified.replace(ranks=tuple(map(self._add_past_errors, verified.ranks)))

    def _add_past_errors(self, checked: RankVerification) -> RankVerification:
        if checked.verdict is None:
            return checked
        codes = {issue.code for issue in checked.verdict.issues}
        past = (
            issue.replace(text=f"{issue.text} (not in the last sample)", is_over=True)
            for (rank, code), issue in self._errors.items()
            if rank == checked.rank and code not in codes
        )
        return checked.replace(verdict=checked.verdict.add(*past))


def _list_issues(verified: VerificationResult) -> frozenset[_Key]:
    return frozenset(
        (checked.rank, issue.code, issue.severity)
        for checked in verified.ranks
        if checked.verdict
        for issue in checked.verdict.issues
    )


def _keep(checked: RankVerification, kept: frozenset[_Key]) -> RankVerification:
    if checked.verdict is None:
        return checked
    issues = checked.verdict.issues
    left = tuple(issue for issue in issues if (checked.rank, issue.code, issue.severity) in kept)
    return checked.replace(verdict=checked.verdict.replace(issues=left))
