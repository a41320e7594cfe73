"""How long CPU quotas have throttled a process, from `cpu.stat` of its cgroup and of its ancestors."""

from __future__ import annotations

from ompbind.machine.sources.filesystem import whole_number
from ompbind.machine.sources.linux.cgroup import read_directories
from ompbind.machine.sources.root import Root
from ompbind.record import Record


class Throttling(Record):
    """How often and for how long the CPU quotas of a cgroup and of its ancestors have throttled it.

    A quota counts its periods while threads run: there were `periods`, and the cgroup was throttled in
    `throttled_periods` of them. `throttled_s` is in seconds, summed over CPUs. `cgroup` is the directory of
    the cgroup, without the first slash.
    """

    cgroup: str
    periods: int = 0
    throttled_periods: int = 0
    throttled_s: float = 0.0

    def __str__(self) -> str:
        periods = f"{self.throttled_periods} of {self.periods} periods"
        few = self.throttled_s < 0.1
        time = f"{self.throttled_s * 1000:.1f} ms" if few else f"{self.throttled_s:.2f} s"
        return f"{periods} ({time}, summed over CPUs)"

    def since(self, before: Throttling) -> Throttling:
        """Return what was counted since an earlier reading of the same cgroup."""
        return self.replace(
            periods=max(0, self.periods - before.periods),
            throttled_periods=max(0, self.throttled_periods - before.throttled_periods),
            throttled_s=max(0.0, self.throttled_s - before.throttled_s),
        )


def read_throttling(root: Root, process: str = "self") -> Throttling | None:
    """Return how the CPU quotas of a process's cgroup and of its ancestors have throttled it.

    `process` is its PID. Counted since the cgroups were created, and summed over quotas; most processes have
    one quota at most. None if no cgroup counts periods.
    """
    directories = read_directories(root, process, controllers=frozenset(("", "cpu")))
    found = [counters for directory in directories if (counters := _read_throttling(root, directory))]
    if not found:
        return None
    return found[0].replace(
        periods=sum(counters.periods for counters in found),
        throttled_periods=sum(counters.throttled_periods for counters in found),
        throttled_s=sum(counters.throttled_s for counters in found),
    )


def _read_throttling(root: Root, directory: str) -> Throttling | None:
    """Read the counters of one cgroup: times in µs (version 2) or ns (version 1); None without periods."""
    pairs = (line.split() for line in (root.read(f"{directory}/cpu.stat") or "").splitlines())
    counts = {pair[0]: whole_number(pair[1]) or 0 for pair in pairs if len(pair) == 2}
    if "nr_periods" not in counts:
        return None
    return Throttling(
        cgroup=directory,
        periods=counts["nr_periods"],
        throttled_periods=counts.get("nr_throttled", 0),
        throttled_s=counts.get("throttled_usec", 0) / 1e6 + counts.get("throttled_time", 0) / 1e9,
    )
