"""What cgroups allow a process: its cpuset and CPU quota; and how many processes ran out of memory.

    proc/self/cgroup        the path of the process's cgroup in each hierarchy
    proc/self/mountinfo     where each hierarchy is mounted (or else proc/mounts)
    <mount>/<path>/…        cpuset.cpus.effective, cpuset.cpus.partition, cpu.max, memory.events (version 2)
                            cpuset.cpus, cpu.cfs_quota_us, memory.oom_control (version 1)

Version 1 has a hierarchy for each controller, version 2 one hierarchy for all. The directories of the cgroup
and of all its ancestors are read, innermost first: the first cpuset counts, and the smallest quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from itertools import islice

from ompbind.cpuset import CpuSet
from ompbind.machine.read.root import Root, read_list, read_word
from ompbind.record import Record
from ompbind.text import whole_number

_CONTROLLERS_BY_TYPE = {"cgroup": set[str](), "cgroup2": {""}, "cpuset": {"cpuset"}}
"""The types of cgroup file systems, with the controllers that a type implies; "" is version 2."""


class CgroupLimits(Record):
    """The limits of a process by its cgroups; None is no limit.

    `directory` is the directory of its `cpuset`, "" if there is none. `mems` are NUMA nodes. In an `isolated`
    partition, the kernel does not balance load between CPUs. `quota` is CPU time in CPUs.
    """

    cpuset: CpuSet | None = None
    directory: str = ""
    mems: CpuSet | None = None
    isolated: bool = False
    quota: float | None = None


_Mount = tuple[frozenset[str], str, str]
"""A mounted hierarchy: its controllers (and other mount options), its mount point, the cgroup at its root."""


def read_limits(root: Root, process: str = "self") -> CgroupLimits:
    """Read the limits of a process, by default the reading process, from its cgroups and their ancestors."""
    cpuset: CpuSet | None = None
    mems: CpuSet | None = None
    innermost = partition = ""
    quotas: list[float] = []
    for directory in read_directories(root, {"cpu", "cpuset"}, process):
        if cpuset is None and (cpuset := _read_cpuset(root, directory, "cpus")):
            innermost = f"/{directory}"
        mems = _read_cpuset(root, directory, "mems") if mems is None else mems
        if partition in ("", "member"):  # a member belongs to the partition of its parent
            partition = read_word(root, f"{directory}/cpuset.cpus.partition")
        words = read_word(root, f"{directory}/cpu.max").split()
        names = () if words else ("quota", "period")
        words += (read_word(root, f"{directory}/cpu.cfs_{name}_us") for name in names)
        numbers = [whole_number(word) for word in words]
        if len(numbers) == 2 and numbers[0] and numbers[1]:
            quotas.append(numbers[0] / numbers[1])  # CPU time divided by the period, both in µs
    return CgroupLimits(
        cpuset=cpuset,
        directory=innermost,
        mems=mems,
        isolated=partition == "isolated",
        quota=min(quotas, default=None),
    )


def read_limits_of(root: Root, pids: Iterable[int]) -> dict[int, CgroupLimits]:
    """Read the limits of processes, by PID; processes in the same cgroups are read once."""
    cgroups = {pid: root.read(f"proc/{pid}/cgroup") for pid in pids}
    processes = {text: pid for pid, text in cgroups.items()}
    limits = {text: read_limits(root, str(pid)) for text, pid in processes.items()}
    return {pid: limits[text] for pid, text in cgroups.items()}


def read_directories(root: Root, controllers: Set[str], process: str = "self") -> Iterator[str]:
    """Yield the directories that limit a process's CPUs, CPU time or tasks: of its cgroup and its ancestors.

    Each hierarchy's directories are in order, innermost first. `controllers` select hierarchies of version 1;
    version 2 has one for all.
    """
    paths = dict(_read_paths(root, process))
    for mount in _read_mounts(root):
        if mount[0] & {"", *controllers}:
            yield from _list_directories(mount, _find_limiting_path(mount[0], paths))


def read_oom_kills(root: Root) -> int | None:
    """Return how many processes the kernel's OOM killer has killed in the cgroup of the reading process.

    Counted since the cgroup was created. In version 2 the nearest ancestor with a counter decides, which
    includes its descendants; in version 1 only the process's own cgroup. None without a counter.
    """
    paths = dict(_read_paths(root))
    for mount in _read_mounts(root):
        controller, name = ("", "memory.events") if "" in mount[0] else ("memory", "memory.oom_control")
        path = paths.get(controller) if controller in mount[0] else None
        for directory in islice(_list_directories(mount, path), 1 if controller else None):
            counts = _read_counts(root, f"{directory}/{name}")
            if counts is not None:
                return counts.get("oom_kill")
    return None


def _read_counts(root: Root, path: str) -> dict[str, int | None] | None:
    """Read a file with lines "name number"; None if it is absent."""
    text = root.read(path)
    pairs = (line.split() for line in (text or "").splitlines())
    return None if text is None else {pair[0]: whole_number(pair[1]) for pair in pairs if len(pair) == 2}


def _read_paths(root: Root, process: str = "self") -> Iterator[tuple[str, str]]:
    """Yield (controller, path of a process's cgroup) of each hierarchy; version 2 is controller ""."""
    for line in (root.read(f"proc/{process}/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            yield controller, path
    own = root.read(f"proc/{process}/cpuset")
    if own is not None:
        yield "cpuset only", own.strip()


def _read_mounts(root: Root) -> Iterator[_Mount]:
    """Yield the mounted cgroup hierarchies; recordings may have `proc/mounts` only."""
    text = root.read("proc/self/mountinfo")
    for line in (text or "").splitlines():
        before, _, after = line.partition(" - ")  # mountinfo: optional fields end with " - "
        left, right = before.split(), after.split()
        if len(left) >= 5 and right and right[0] in _CONTROLLERS_BY_TYPE:
            yield _controllers(right[0], right[-1]), left[4], left[3]
    if text is None:
        for line in (root.read("proc/mounts") or root.read("proc/self/mounts") or "").splitlines():
            words = line.split()
            if len(words) >= 4 and words[2] in _CONTROLLERS_BY_TYPE:
                yield _controllers(words[2], words[3]), words[1], "/"


def _controllers(kind: str, options: str) -> frozenset[str]:
    return frozenset(filter(None, options.split(","))) | _CONTROLLERS_BY_TYPE[kind]


def _list_directories(mount: _Mount, path: str | None) -> Iterator[str]:
    """Yield the directories of the cgroup with a path and of its ancestors, innermost first.

    In a container the mount may show only a part of the hierarchy: its root is then the cgroup `top`, and a
    path below `top` is relative to it.
    """
    if path is None:
        return
    _, point, top = mount
    top = top.rstrip("/") + "/"
    inside = path[len(top) :] if f"{path}/".startswith(top) else path
    steps = [step for step in inside.split("/") if step not in ("", "..")]
    for depth in range(len(steps), -1, -1):
        yield "/".join([point.strip("/"), *steps[:depth]])


def _find_limiting_path(controllers: frozenset[str], paths: dict[str, str]) -> str | None:
    """Return the path of the cgroup that limits CPUs, CPU time or tasks in a hierarchy, if it does."""
    if "" in controllers:
        return paths.get("", paths.get("cpuset only"))
    if "cpuset" in controllers and "cpuset" not in paths:
        return paths.get("cpuset only")
    limiting = controllers & {"cpu", "cpuset", "pids"} & set(paths)
    return paths[min(limiting)] if limiting else None


def _read_cpuset(root: Root, directory: str, kind: str) -> CpuSet | None:
    """Read the set of a cgroup, `kind` "cpus" or "mems"; None if it is empty, which means "as the parent"."""
    names = (f"cpuset.{kind}.effective", f"cpuset.effective_{kind}", f"cpuset.{kind}", kind)
    found = (read_list(root, f"{directory}/{name}") for name in names)
    return next(filter(None, found), None)


class Throttling(Record):
    """How often and for how long the CPU quotas of a cgroup and of its ancestors have throttled it.

    A quota counts its periods while threads run. `throttled_s` is summed over CPUs. `cgroup` is the directory
    of the cgroup, without the first slash.
    """

    cgroup: str
    periods: int = 0
    throttled_periods: int = 0
    throttled_s: float = 0.0

    def __str__(self) -> str:
        seconds = self.throttled_s
        time = f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s"
        return f"{self.throttled_periods} of {self.periods} periods ({time}, summed over CPUs)"

    def since(self, before: Throttling) -> Throttling:
        """Return what was counted since an earlier reading of the same cgroup."""
        counts = ("periods", "throttled_periods", "throttled_s")
        return self.replace(**{name: max(0, getattr(self, name) - getattr(before, name)) for name in counts})


def read_throttling(root: Root, process: str = "self") -> Throttling | None:
    """Return how the CPU quotas of a process's cgroup and of its ancestors have throttled it.

    Counted since the cgroups were created, and summed over quotas. None if no cgroup counts periods.
    """
    innermost, sums = "", Counter[str]()
    for directory in read_directories(root, {"cpu"}, process):
        counts = _read_counts(root, f"{directory}/cpu.stat") or {}
        if "nr_periods" in counts:
            innermost = innermost or directory
            sums.update({name: number or 0 for name, number in counts.items()})
    if not innermost:
        return None
    return Throttling(
        cgroup=innermost,
        periods=sums["nr_periods"],
        throttled_periods=sums["nr_throttled"],
        throttled_s=sums["throttled_usec"] / 1e6 + sums["throttled_time"] / 1e9,  # of version 2, of version 1
    )
