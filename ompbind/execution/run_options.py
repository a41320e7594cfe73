"""The options of a run: how its ranks are started, supervised and stopped, as plain values."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ompbind.execution.outcome import Outcome
from ompbind.execution.restarts import RestartPolicy
from ompbind.planning.request import Hold
from ompbind.record import Record

if TYPE_CHECKING:
    from ompbind.inspection.diagnosis import ExpectedBinding
    from ompbind.inspection.verdict import VerificationResult


class Output(Record):
    """Where standard output and standard error of all ranks go, unless ranks inherit both.

    At least one of `tag` and `directory` is given. With `tag` every line goes to the output of ompbind, with
    its rank as a prefix; `timestamps` adds the time to the prefix. `colours` is whether the prefix is
    coloured, on standard output and on standard error. `pty` gives each rank a pseudo-terminal as standard
    output, so that programs do not buffer lines. With `directory` the output goes to the log files RANK.out
    and RANK.err there; `force` overwrites existing files.
    """

    tag: bool = False
    timestamps: bool = False
    colours: tuple[bool, bool] = (False, False)
    directory: str | None = None
    force: bool = False
    pty: bool = False


class RankGroup(Record):
    """How the ranks of a group are started and supervised; a run without groups has one of these.

    - `stop_on_failure`: a rank that fails, and does not start again, stops the run
    - `restart`: for --on-failure restart, when failed ranks start again; None for never
    - `after`: the name of the group that must be ready before these ranks start, "" for none
    - `ready_timeout_s`: the seconds that the ranks have to get ready
    """

    stop_on_failure: bool = True
    restart: RestartPolicy | None = None
    after: str = ""
    ready_timeout_s: float = 600.0


ONE_GROUP: Mapping[str, RankGroup] = MappingProxyType({"": RankGroup()})  # the groups of a run without groups


class RunOptions(Record):
    """How to run the ranks: what the user chose, and what follows for this run.

    - `run_id`: the value of OMPBIND_RUN_ID in ranks
    - `output`: None if ranks inherit standard output and error
    - `timeout`, `grace`: seconds; None or 0 for no timeout
    - `keep_descendants`: processes that have left the process group of their rank are not stopped
    - `groups`: the options of each group by its name, which is "" in a run without groups; in order of start
    - `until`: the group at whose end the run stops, "" for the end of all ranks
    - `publish_restarts`: called with the number of restarts so far, after each of them
    - `stdin_first`: the first rank gets standard input, as --stdin first; otherwise no rank does
    - `expected`: for --verify, the expected binding of each rank with its number of threads
    - `strict`: a binding that is not as expected stops the run
    - `hold`: threads of ranks cannot leave their CPUs, as --hold; None to let them
    - `has_quota`: the cgroup has a CPU quota
    - `is_in_slurm_job`: Slurm may send a signal to all processes of the job, which then is not forwarded
    """

    run_id: str
    output: Output | None = None
    timeout: float | None = None
    grace: float = 10.0
    keep_descendants: bool = False
    groups: Mapping[str, RankGroup] = ONE_GROUP
    until: str = ""
    publish_restarts: Callable[[int], None] | None = None
    stdin_first: bool = True
    expected: Mapping[int, "tuple[ExpectedBinding, int]"] | None = None
    strict: bool = False
    hold: Hold | None = None
    has_quota: bool = False
    is_in_slurm_job: bool = False

    @property
    def files_per_rank(self) -> int:
        """The number of files that ompbind has open for each running rank, its pidfd included."""
        if not (self.output and self.output.tag):
            return 1
        return 3 if self.output.directory is None else 5


class Reporter:
    """Renders events of a run; every method returns the text to write, "" for no text, as here."""

    def message(self, line: str) -> str:
        """Render one event of the run."""
        return ""

    def error(self, line: str) -> str:
        """Render an error; it is written with --quiet too."""
        return ""

    def verified(self, verified: "VerificationResult") -> str:
        """Render the result of --verify."""
        return ""

    def summary(self, outcome: Outcome) -> str:
        """Render the summary of the finished run."""
        return ""
