"""Find masks that the kernel changed because the cpuset of a process has changed.

Version 1 of cgroups gives all threads the CPUs of the new cpuset. Version 2 gives each thread the part of its
mask that the new cpuset allows, or the whole new cpuset if no CPU is left.
"""

from ompbind.cpuset import CpuSet, named
from ompbind.inspection.expectation import ExpectedBinding
from ompbind.machine.sources.linux.cgroup import CgroupLimits
from ompbind.record import Record


class CpusetChange(Record):
    """The limits of the first process of a rank `now`, and `before` if they were read earlier."""

    now: CgroupLimits = CgroupLimits()
    before: CgroupLimits | None = None

    def explains(self, mask: CpuSet, expected: ExpectedBinding) -> bool:
        """Return whether the kernel gives a thread this mask because of the cpuset."""
        allowed = self.now.cpuset
        if not allowed:
            return False
        has_changed = self.before is not None and self.before.cpuset != allowed
        if mask == allowed and has_changed:
            return True
        left = {allowed, *(each & allowed for each in expected.masks)}
        return mask in left and not expected.cpus <= allowed

    @property
    def text(self) -> str:
        """What has happened; only what the cpuset allows if nothing was read before."""
        now, before = self.now, self.before
        allowed = named("CPU", now.cpuset or ())
        if before is None or before.cpuset is None or before.cpuset == now.cpuset:
            return f"the cpuset of {now.directory} allows only {allowed}"
        planned = named("CPU", before.cpuset)
        if before.directory == now.directory:
            return f"the cpuset of {now.directory} has changed from {planned} to {allowed}"
        way = f"{before.directory} ({planned}) to {now.directory} ({allowed})"
        return f"the process was moved from the cpuset of {way}"


UNKNOWN = CpusetChange()
"""The change if no limits were read."""
