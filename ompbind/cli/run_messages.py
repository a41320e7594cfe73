"""The messages of `ompbind run` while ranks run, and its summary."""

from ompbind.cli.console import read_message_width, render_message
from ompbind.execution.outcome import Outcome, exit_code
from ompbind.inspection.verdict import VerificationResult
from ompbind.planning.plan import Plan
from ompbind.report.run_summary import render_failures, render_throttling, render_usage_table


class RunReporter:
    """Renders the messages of the supervisor: implements the `Reporter` of `execution`.

    With `quiet` only errors and failed verifications are rendered, with `verbose` also the resource usage of
    each rank. `stderr_shown` is True if the user has seen what ranks wrote to standard error.
    """

    def __init__(self, plan: Plan, *, quiet: bool, verbose: bool, stderr_shown: bool) -> None:
        self._plan = plan
        self._quiet = quiet
        self._verbose = verbose
        self._stderr_shown = stderr_shown

    def message(self, line: str) -> str:
        """Render one event of the run."""
        return "" if self._quiet else render_message(line)

    def error(self, line: str) -> str:
        """Render an error of ompbind, in quiet runs too."""
        return render_message(f"error: {line}")

    def verified(self, verified: VerificationResult) -> str:
        """Render the result of --verify."""
        from ompbind.report.verification import render_verified  # noqa: PLC0415 - door: --verify

        return render_verified(verified, self._plan, quiet=self._quiet, width=read_message_width())

    def summary(self, outcome: Outcome) -> str:
        """Render the failures of ranks, and throttling; with `verbose` also the resource usage of ranks."""
        was_throttled = outcome.throttling and outcome.throttling.throttled_periods
        if self._quiet or not (self._verbose or exit_code(outcome) or was_throttled):
            return ""
        width = read_message_width()
        failures = render_failures(outcome, stderr_shown=self._stderr_shown, width=width)
        throttling = render_throttling(outcome, self._plan, width)
        usage = render_usage_table(outcome, self._plan, width) if self._verbose else ""
        return "\n".join(filter(None, (failures, throttling, usage)))
