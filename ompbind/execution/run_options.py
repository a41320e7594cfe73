"""The options of a run: how its ranks are started, watched and stopped, as plain values."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ompbind.record import Record

if TYPE_CHECKING:  # most runs inherit their output, few are verified
    from ompbind.execution.output.options import Output
    from ompbind.inspection.expectation import Expected


class RunOptions(Record):
    """How to run the ranks; times are seconds, None for no limit.

    `run_id` is what ranks find as OMPBIND_RUN_ID. Without `output` ranks inherit standard output and error.
    With `keep_descendants` processes that leave a rank's process group may live on. `expected` is what
    --verify expects of each rank, with its number of threads; with `strict` a problem ends the run.
    """

    run_id: str
    output: "Output | None" = None
    grace_s: float = 10.0
    timeout_s: float | None = None
    stop_on_failure: bool = True
    stdin_first: bool = True
    keep_descendants: bool = False
    expected: "Mapping[int, tuple[Expected, int]] | None" = None
    strict: bool = False

    @property
    def is_tagged(self) -> bool:
        """Tell whether every line of ranks goes through ompbind."""
        return self.output is not None and self.output.tag

    @property
    def files_of_a_rank(self) -> int:
        """The files that ompbind has open for each rank while it runs, one of them for its end."""
        return self.output.files_of_a_rank if self.output else 1
