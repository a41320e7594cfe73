"""What the supervisor needs of whoever words what a run says."""

from typing import Protocol

from ompbind.execution.outcome import Outcome
from ompbind.inspection.verdict import Verified


class Reporter(Protocol):
    """Words what a run has to say; every method returns the text to write, "" for nothing."""

    def message(self, line: str) -> str:
        """Word one event of the run."""

    def error(self, line: str) -> str:
        """Word what ompbind cannot do; quiet runs say it as well."""

    def verified(self, verified: Verified) -> str:
        """Word what was seen of the threads of ranks."""

    def summary(self, outcome: Outcome) -> str:
        """Word the end of the whole run."""
