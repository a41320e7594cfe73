"""What the kernel counts while ranks run: their usage, and processes that it killed for want of memory."""

from resource import RUSAGE_SELF, getrusage, struct_rusage

from ompbind.execution.outcome import KIB, Usage, make_usage
from ompbind.machine.sources.filesystem import FolderRoot
from ompbind.machine.sources.linux.cgroup import read_oom_kills


class Accounting:
    """The counts of one run."""

    def __init__(self) -> None:
        self._floor_bytes = 0  # the most memory that ompbind had while it started ranks
        self._oom_kills: int | None = None  # how many there had been when all ranks were started

    def note_start(self) -> None:
        """Note how much memory this process had when it started a rank."""
        self._floor_bytes = getrusage(RUSAGE_SELF).ru_maxrss * KIB

    def begin(self) -> None:
        """Count from now on what the kernel kills."""
        self._oom_kills = read_oom_kills(FolderRoot("/"))

    def make_usage(self, used: struct_rusage, wall_s: float) -> Usage:
        """Say what a rank used that has ended, by what the kernel counted."""
        return make_usage(used, wall_s, self._floor_bytes)

    def count_oom_kills(self) -> int:
        """Count what the kernel has killed for want of memory since all ranks were started."""
        before = self._oom_kills
        return 0 if before is None else max(0, (read_oom_kills(FolderRoot("/")) or 0) - before)
