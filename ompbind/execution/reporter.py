"""The interface through which the supervisor gets the texts of its messages."""

from typing import Protocol

from ompbind.execution.outcome import Outcome
from ompbind.inspection.verdict import VerificationResult


class Reporter(Protocol):
    """Renders events of a run; every method returns the text to write, "" for no text."""

    def message(self, line: str) -> str:
        """Render one event of the run."""

    def error(self, line: str) -> str:
        """Render an error; it is written with --quiet too."""

    def verified(self, verified: VerificationResult) -> str:
        """Render the result of --verify."""

    def summary(self, outcome: Outcome) -> str:
        """Render the summary of the finished run."""
