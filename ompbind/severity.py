"""The severity of issues that doctor, inspect and verify report."""

from collections.abc import Iterable
from enum import StrEnum


class Severity(StrEnum):
    """The severity of an issue, worst first.

    An error breaks a binding, a warning may do so but could not be measured, a note may be intended.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"

    @property
    def json_level(self) -> str:
        """The word in JSON of schema version 1, where an error is called a problem."""
        return "problem" if self is Severity.ERROR else self.value


def worst(severities: Iterable[Severity]) -> Severity:
    """Return the worst of some severities; OK if there are none."""
    return min(severities, key=list(Severity).index, default=Severity.OK)
