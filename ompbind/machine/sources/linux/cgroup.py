"""What the control groups allow a process: its cpuset, the CPU time of its quota; and who ran out of memory.

Version 1 keeps a hierarchy for each controller, version 2 has one for all; where they are mounted is
read, not assumed, and a limit of any enclosing group counts.
"""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet
from ompbind.machine.sources.filesystem import Root, whole_number
from ompbind.record import Record

_KINDS = {"cgroup": set[str](), "cgroup2": {""}, "cpuset": {"cpuset"}}
"""The file system types by which control groups are mounted, with the controllers that this implies."""


class Limits(Record):
    """The cpuset of the process, None where no group tells one, and its quota in CPUs, None if free.

    `mems` are the NUMA nodes whose memory its cpuset allows, None where no group tells them.
    """

    cpuset: CpuSet | None = None
    mems: CpuSet | None = None
    quota: float | None = None


_Mount = tuple[frozenset[str], str, str]
"""One mounted hierarchy: its controllers among its options, where it is mounted, and the group at its top."""


def read_limits(root: Root) -> Limits:
    """Read the limits of the process that reads, from `proc/self` and the mounted hierarchies."""
    groups = dict(_groups(root))
    cpuset: CpuSet | None = None
    mems: CpuSet | None = None
    quotas: list[float] = []
    for mount in _mounts(root):
        for folder in _folders(mount, _limiting_group(mount[0], groups)):
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
            if text is not None:  # kernels before 4.13 have no such line in it
                pairs = (line.split() for line in text.splitlines())
                told = (pair[1] for pair in pairs if len(pair) == 2 and pair[0] == "oom_kill")
                return whole_number(next(told, None))
    return None


def _memory_counters(mount: _Mount, groups: dict[str, str]) -> list[str]:
    """Return the files that may count for the process, the nearest first; in version 1 only its own may."""
    if "" in mount[0]:
        return [f"{folder}/memory.events" for folder in _folders(mount, groups.get(""))]
    own = groups.get("memory") if "memory" in mount[0] else None
    return [f"{folder}/memory.oom_control" for folder in _folders(mount, own)][:1]


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
    for line in (text or "").splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) >= 5 and right and right[0] in _KINDS:
            yield _controllers(right[0], right[-1]), left[4], left[3]
    if text is None:
        for line in (root.read("proc/mounts") or root.read("proc/self/mounts") or "").splitlines():
            words = line.split()
            if len(words) >= 4 and words[2] in _KINDS:
                yield _controllers(words[2], words[3]), words[1], "/"


def _controllers(kind: str, options: str) -> frozenset[str]:
    return frozenset(filter(None, options.split(","))) | _KINDS[kind]


def _folders(mount: _Mount, path: str | None) -> Iterator[str]:
    """Yield the folders of the group at a path and of those that enclose it, innermost first."""
    if path is None:
        return
    _, point, top = mount
    top = top.rstrip("/") + "/"
    inside = path[len(top) :] if f"{path}/".startswith(top) else path
    steps = [step for step in inside.split("/") if step not in ("", "..")]
    for depth in range(len(steps), -1, -1):
        yield "/".join([point.strip("/"), *steps[:depth]])


def _limiting_group(controllers: frozenset[str], groups: dict[str, str]) -> str | None:
    """Return the group by whose cpuset or quota a hierarchy limits the process, None for others."""
    if "" in controllers:
        return groups.get("", groups.get("cpuset only"))
    if "cpuset" in controllers and "cpuset" not in groups:
        return groups.get("cpuset only")
    named = controllers & {"cpu", "cpuset"} & set(groups)
    return groups[min(named)] if named else None


def _set(root: Root, folder: str, what: str) -> CpuSet | None:
    """Read the first file of "cpus" or "mems" that holds a set; an empty one means "as the parent"."""
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
    words = (root.read(f"{folder}/cpu.max") or "").split()
    files = [root.read(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period") if not words]
    numbers = [whole_number(word) for word in words or files]
    if len(numbers) == 2 and numbers[0] and numbers[1]:
        yield numbers[0] / numbers[1]
