"""What the samples of one run have found: which issues are confirmed, reported, or over."""

from collections.abc import Callable, Collection

from ompbind.inspection.verdict import ThreadIssue, Unseen, VerificationResult
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
        self.errors: dict[tuple[int, str], tuple[int, ThreadIssue]] = {}  # reported so far, with the attempt
        self._reported_errors: frozenset[tuple[int, str]] | None = None
        self._reported: frozenset[_Key] = frozenset()  # all issues

    def confirm(self, verified: VerificationResult, *, at_once: Collection[int] = ()) -> VerificationResult:
        """Return the result with the issues that the last sample had too, and all of the ranks `at_once`."""
        found = _list_issues(verified)
        kept = {key for key, _ in found if key[0] in at_once or key in self._last or key[1] == _LOAD}
        self._last = frozenset(key for key, _ in found)
        self.unconfirmed = tuple((key[0], issue) for key, issue in found if key not in kept)
        return select_issues(verified, lambda rank, issue: (rank, issue.code, issue.severity) in kept)

    def should_report(self, verified: VerificationResult, *, ended: bool = False) -> bool:
        """Return whether a result differs from the last one reported, and remember it as reported.

        It differs if an error has come or gone, if any issue is new, or if ranks are no longer visible; of a
        run that has `ended`, if any issue is new. Oversubscription is reported once.
        """
        issues = {key for key, _ in _list_issues(verified)}
        errors = frozenset((rank, code) for rank, code in verified.errors if code != _LOAD)
        errors |= {(rank, Unseen.HIDDEN) for rank in verified.find(Unseen.HIDDEN)}
        differs = (errors != self._reported_errors and not ended) or not issues <= self._reported
        self._reported_errors = errors
        self._reported |= issues
        for checked in verified.ranks:
            for issue in checked.errors:
                self.errors[checked.rank, issue.code] = (checked.attempt, issue)
        return differs

    def add_past_errors(self, verified: VerificationResult) -> VerificationResult:
        """Return the result with all errors that were reported, and that the last sample did not have."""
        ranks = []
        for checked in verified.ranks:
            codes, past = {issue.code for issue in checked.errors}, []
            for (rank, code), (attempt, issue) in self.errors.items():
                if rank == checked.rank and code not in codes:
                    is_same = attempt == checked.attempt
                    when = "not in the last sample" if is_same else f"in attempt {attempt}"
                    past.append((attempt, issue.replace(text=f"{issue.text} ({when})")))
            ranks.append(checked.replace(past=tuple(past)))
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
