"""Kernel counters of a run: ompbind's peak memory at the start of ranks, out-of-memory kills, throttling."""

from resource import RUSAGE_SELF, getrusage

from ompbind.execution.outcome import KIB
from ompbind.machine.sources.linux.cgroup import Throttling, read_oom_kills, read_throttling
from ompbind.machine.sources.root import DirectoryRoot


class Accounting:
    """The counters of one run, from now on; throttling is only counted where there is a CPU quota.

    `inherited_rss_bytes` is the peak memory of this process when it last started a rank, which inherits it.
    """

    def __init__(self, *, has_quota: bool) -> None:
        self.inherited_rss_bytes = 0
        self._oom_kills: int | None = None  # the counter of the cgroup when all ranks were started
        self._throttling = _read_throttling() if has_quota else None

    def note_start(self) -> None:
        """Note the peak memory of this process after the start of a rank."""
        self.inherited_rss_bytes = getrusage(RUSAGE_SELF).ru_maxrss * KIB

    def start_oom_count(self) -> None:
        """Count out-of-memory kills from now on."""
        self._oom_kills = read_oom_kills(DirectoryRoot("/"))

    def count_oom_kills(self) -> int:
        """Return how many processes the out-of-memory killer has killed since all ranks were started."""
        before = self._oom_kills
        return 0 if before is None else max(0, (read_oom_kills(DirectoryRoot("/")) or 0) - before)

    def count_throttling(self) -> Throttling | None:
        """Return how the CPU quota has throttled the cgroup during the run; None without a quota."""
        if self._throttling is None:
            return None
        now = _read_throttling()
        return now and now.since(self._throttling)


def _read_throttling() -> Throttling | None:
    return read_throttling(DirectoryRoot("/"))
