"""The verification of one run, as far as it has come."""

from ompbind.errors import LaunchError
from ompbind.execution.verify.sampler import Sampler
from ompbind.inspection.verification import Verified


class Verification:
    """What was seen of the threads of a run, and what follows from it.

    `verified` is what the samples mean, None before there are enough; `error` is why the run ends for it.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.verified: Verified | None = None
        self.error: LaunchError | None = None
        self._reported: frozenset[tuple[int, str]] = frozenset()

    def note(self, verified: Verified) -> None:
        """Take over what the last samples mean."""
        self.verified = verified

    def report(self, verified: Verified) -> bool:
        """Tell whether something has to be said: nothing where all that is wrong was said before."""
        problems = verified.problems
        if problems and problems <= self._reported:
            return False
        self._reported |= problems
        return True

    def fail(self, error: LaunchError) -> None:
        """Note why the run ends for what was seen."""
        self.error = error
