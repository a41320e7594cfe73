"""What the control groups allow a process: its cpuset, the CPU time of its quota; and who ran out of memory.

Version 1 keeps a hierarchy for each controller, version 2 has one for all; where they are mounted is
read, not assumed, and a limit of any enclosing group counts.
"""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet
from ompbind.machine.sources.filesystem import Root, whole_number
from ompbind.record import Record

_KINDS = ("cgroup", "cgroup2", "cpuset")
"""The file system types by which control groups are mounted."""


class Limits(Record):
    """The cpuset of the process, None where no group tells one, and its quota in CPUs, None if free.

    `mems` are the NUMA nodes whose memory its cpuset allows, None where no group tells them.
    """

    cpuset: CpuSet | None = None
    mems: CpuSet | None = None
    quota: float | None = None


class _Mount(Record):
    """One mounted hierarchy: "cgroup2", "cgroup" or "cpuset", its options, and the group at its top."""

    kind: str
    options: frozenset[str]
    point: str
    top: str = "/"


def read_limits(root: Root) -> Limits:
    """Read the limits of the process that reads, from `proc/self` and the mounted hierarchies."""
    groups = dict(_groups(root))
    cpuset: CpuSet | None = None
    mems: CpuSet | None = None
    quotas: list[float] = []
    for mount in _mounts(root):
        for folder in _folders(mount, _path_in(mount, groups)):
            cpuset = _set(root, folder, "cpus") if cpuset is None else cpuset
            mems = _set(root, folder, "mems") if mems is None else mems
            quotas.extend(_quota(root, folder))
    return Limits(cpuset=cpuset, mems=mems, quota=min(quotas, default=None))


def read_oom_kills(root: Root) -> int | None:
    """Count the processes of its own group that the kernel has killed because memory ran out, since ever.

    The group is the one that accounts for the memory of the process that reads: in version 2 the nearest
    that has such a counter, and those inside it count too. None where no group counts.
    """
    groups = dict(_groups(root))
    for mount in _mounts(root):
        for path in _memory_counters(mount, groups):
            text = root.read(path)
            if text is not None:
                return _counter(text, "oom_kill")
    return None


def _memory_counters(mount: _Mount, groups: dict[str, str]) -> list[str]:
    """Return the files that may count for the process, the nearest first; in version 1 only its own may."""
    if mount.kind == "cgroup2":
        return [f"{folder}/memory.events" for folder in _folders(mount, groups.get(""))]
    if "memory" not in mount.options:
        return []
    return [f"{folder}/memory.oom_control" for folder in _folders(mount, groups.get("memory"))][:1]


def _counter(text: str, name: str) -> int | None:
    """Return the number on the line of that name, None when there is no such line: kernels before 4.13."""
    pairs = (line.split() for line in text.splitlines())
    return next((whole_number(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == name), None)


def _groups(root: Root) -> Iterator[tuple[str, str]]:
    """Yield (controller, path) of the process; the one hierarchy of version 2 is controller ""."""
    for line in (root.read("proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            yield controller, path
    own = root.read("proc/self/cpuset")
    if own is not None:
        yield "cpuset only", own.strip()


def _mounts(root: Root) -> Iterator[_Mount]:
    text = root.read("proc/self/mountinfo")
    if text is not None:
        yield from _mountinfo(text)
        return
    for line in (root.read("proc/mounts") or root.read("proc/self/mounts") or "").splitlines():
        words = line.split()
        if len(words) >= 4 and words[2] in _KINDS:
            yield _Mount(kind=words[2], options=frozenset(words[3].split(",")), point=words[1])


def _mountinfo(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) >= 5 and right and right[0] in _KINDS:
            options = frozenset(right[-1].split(","))
            yield _Mount(kind=right[0], options=options, point=left[4], top=left[3])


def _folders(mount: _Mount, path: str | None) -> Iterator[str]:
    """Yield the folders of the group at a path and of those that enclose it, innermost first."""
    if path is None:
        return
    top = mount.top.rstrip("/") + "/"
    inside = path[len(top) :] if f"{path}/".startswith(top) else path
    steps = [step for step in inside.split("/") if step not in ("", "..")]
    for depth in range(len(steps), -1, -1):
        yield "/".join([mount.point.strip("/"), *steps[:depth]])


def _path_in(mount: _Mount, groups: dict[str, str]) -> str | None:
    if mount.kind == "cgroup2":
        return groups.get("", groups.get("cpuset only"))
    if mount.kind == "cpuset" or ("cpuset" in mount.options and "cpuset" not in groups):
        return groups.get("cpuset", groups.get("cpuset only"))
    named = mount.options & {"cpu", "cpuset"} & set(groups)
    return groups[min(named)] if named else None


def _set(root: Root, folder: str, what: str) -> CpuSet | None:
    """Read the first cpuset file of a group that holds a set; an empty one means "as the parent".

    `what` is "cpus", or "mems" for NUMA nodes.
    """
    for name in (f"cpuset.{what}.effective", f"cpuset.effective_{what}", f"cpuset.{what}", what):
        try:
            found = CpuSet.from_list(root.read(f"{folder}/{name}") or "")
        except ValueError:
            continue
        if found:
            return found
    return None


def _quota(root: Root, folder: str) -> Iterator[float]:
    """Yield the group's own quota in CPUs, if it has one."""
    words = (root.read(f"{folder}/cpu.max") or "").split() or [
        (root.read(f"{folder}/cpu.cfs_quota_us") or "").strip(),
        (root.read(f"{folder}/cpu.cfs_period_us") or "").strip(),
    ]
    numbers = [whole_number(word) for word in words]
    if len(numbers) == 2 and numbers[0] and numbers[1]:
        yield numbers[0] / numbers[1]
