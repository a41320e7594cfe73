"""What `ompbind run` says of a run while it goes on, and at its end."""

from typing import TYPE_CHECKING

from ompbind.cli.console import make_message
from ompbind.execution.outcome import Outcome, exit_code
from ompbind.planning.plan import Plan

if TYPE_CHECKING:  # few runs are verified
    from ompbind.inspection.verdict import Verified


class RunReporter:
    """Words what the supervisor has to say: the `Reporter` of `execution`.

    With `quiet` only errors and failed verifications are said, with `verbose` also what each rank used.
    `seen` tells that the user has seen what ranks wrote to standard error.
    """

    def __init__(self, plan: Plan, *, quiet: bool, verbose: bool, seen: bool) -> None:
        self._plan = plan
        self._quiet = quiet
        self._verbose = verbose
        self._seen = seen

    def message(self, line: str) -> str:
        """Word one event of the run."""
        return "" if self._quiet else make_message(line)

    def error(self, line: str) -> str:
        """Word what ompbind cannot do; quiet runs say it as well."""
        return make_message(f"error: {line}")

    def verified(self, verified: "Verified") -> str:
        """Word what was seen of the threads of ranks."""
        from ompbind.report.verification import render_verified

        return render_verified(verified, self._plan, quiet=self._quiet)

    def summary(self, outcome: Outcome) -> str:
        """Say of a run what was not said while it was on; with `verbose` also what its ranks used."""
        if self._quiet or not (self._verbose or exit_code(outcome)):
            return ""
        # late: mostly there is nothing to say
        from ompbind.report.run_summary import render_accounts, render_failures

        accounts = render_accounts(outcome, self._plan) if self._verbose else ""
        return "\n".join(filter(None, (render_failures(outcome, seen=self._seen), accounts)))
