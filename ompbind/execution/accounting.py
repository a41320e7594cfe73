"""What the kernel counts while ranks run: their usage, and processes that it killed for want of memory."""

from resource import RUSAGE_SELF, getrusage

from ompbind.execution.outcome import KIB
from ompbind.machine.sources.filesystem import FolderRoot
from ompbind.machine.sources.linux.cgroup import read_oom_kills


class Accounting:
    """The counts of one run."""

    def __init__(self) -> None:
        self.floor_bytes = 0  # the most memory that ompbind had while it started ranks
        self._oom_kills: int | None = None  # how many there had been when all ranks were started

    def note_start(self) -> None:
        """Note how much memory this process had when it started a rank."""
        self.floor_bytes = getrusage(RUSAGE_SELF).ru_maxrss * KIB

    def begin(self) -> None:
        """Count from now on what the kernel kills."""
        self._oom_kills = read_oom_kills(FolderRoot("/"))

    def count_oom_kills(self) -> int:
        """Count what the kernel has killed for want of memory since all ranks were started."""
        before = self._oom_kills
        return 0 if before is None else max(0, (read_oom_kills(FolderRoot("/")) or 0) - before)
