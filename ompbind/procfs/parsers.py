"""Parse files below /proc/PID, see proc(5): text or bytes → values."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from ompbind.record import Record
from ompbind.text import clean_name, whole_number

EXITED_STATES = ("Z", "X", "x")  # the states of processes and threads that have exited: zombie, dead

T = TypeVar("T")

_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}
"""Scheduling policies by number (SCHED_*), with the names of `chrt`."""

_KERNEL = 0x00200000  # PF_KTHREAD, the flag of kernel threads
_FIXED_AFFINITY = 0x04000000  # PF_NO_SETAFFINITY


class Stat(Record):
    """A stat file, /proc/PID/stat of a process or /proc/PID/task/TID/stat of a thread; times in clock ticks.

    `state` is a letter as in `ps`. `parent`, `group` and `session` are the IDs of the parent process, the
    process group and the session. `busy_ticks` is user and system time, `reaped_ticks` that of descendants
    that have exited and were waited for. `start_ticks` is the start since boot.
    `has_fixed_affinity`: the kernel refuses to change its affinity mask, as for io_uring before Linux 6.3.
    `cpu` is the CPU it last ran on, `policy` its scheduling policy. `arguments` are the addresses of its
    command line in its memory: start and end.
    """

    name: str
    state: str
    parent: int
    group: int
    session: int
    is_kernel: bool
    has_fixed_affinity: bool
    busy_ticks: int
    reaped_ticks: int
    start_ticks: int
    cpu: int
    policy: str
    arguments: tuple[int, ...]


def parse_stat(stat: bytes) -> Stat:
    """Parse a stat file; the name in it may contain any characters, brackets too. Raises ValueError."""
    head, _, tail = stat.rpartition(b")")
    state, *words = tail.split() or (b"",)
    if len(words) <= 37:
        raise ValueError("the stat file is truncated")
    fields = list(map(int, words))
    return Stat(
        name=clean_name(head.partition(b"(")[2].decode("utf-8", "replace")),
        state=state.decode(),
        parent=fields[0],
        group=fields[1],
        session=fields[2],
        is_kernel=bool(fields[5] & _KERNEL),
        has_fixed_affinity=bool(fields[5] & _FIXED_AFFINITY),
        busy_ticks=fields[10] + fields[11],
        reaped_ticks=fields[12] + fields[13],
        start_ticks=fields[18],
        cpu=fields[35],
        policy=_POLICIES.get(fields[37], str(fields[37])),
        arguments=tuple(fields[44:46]),
    )


class CpuTimes(Record):
    """The times of a CPU since boot in clock ticks.

    `processes` is the time of all processes, `busy` adds interrupts, and `total` also has idle time and
    `stolen` time, in which the hypervisor ran something else.
    """

    processes: int
    busy: int
    stolen: int
    total: int


def parse_cpu_times(stat: str) -> dict[int | None, CpuTimes]:
    """Parse /proc/stat: the times of each online CPU, and with the key None of all CPUs together."""
    times: dict[int | None, CpuTimes] = {}
    for line in stat.splitlines():
        name, *fields = line.split()[:9] or [""]
        numbers = [number for number in map(whole_number, fields) if number is not None]
        if name.startswith("cpu") and len(numbers) == 8:
            user, nice, system, idle, waiting, *others, stolen = numbers
            processes = user + nice + system
            busy = processes + sum(others)
            times[whole_number(name[3:])] = CpuTimes(
                processes=processes, busy=busy, stolen=stolen, total=busy + idle + waiting + stolen
            )
    return times


def status_value(status: str, key: str) -> str | None:
    """Return the value of a line "KEY: value" in /proc/PID/status; None if there is no such line."""
    _, found, rest = f"\n{status}".partition(f"\n{key}:")
    return rest.partition("\n")[0].strip() if found else None


def parse_environ(environ: bytes) -> dict[str, str]:
    """Parse /proc/PID/environ into the variables by name that a program was started with."""
    pairs = (pair.partition("=") for pair in environ.decode("utf-8", "surrogateescape").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def is_overwritten(environ: bytes) -> bool:
    """Return whether a program has written over /proc/PID/environ, from its start, as with its title.

    The title and what fills the rest (NULs, spaces) end before the first variable that the program has moved
    elsewhere, because it changed the value. The variables from there on are unchanged.
    """
    return bool(environ) and (b"=" not in environ.partition(b"\0")[0] or b"\0\0" in environ)


def find_descendants(processes: Mapping[int, Stat], roots: Collection[int]) -> set[int]:
    """Return the PIDs of some processes and of all their descendants."""
    return set(find_owners(processes, dict.fromkeys(roots)))


def find_owners(processes: Mapping[int, Stat], owners: Mapping[int, T]) -> dict[int, T]:
    """Return the owner of each process that has one: its own, or the owner of its nearest ancestor."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found = dict(owners)
    new = list(owners)
    while new:
        pid = new.pop()
        for child in children.get(pid, ()):
            if child not in found:
                found[child] = found[pid]
                new.append(child)
    return found


def parse_command(cmdline: bytes) -> tuple[str, ...]:
    """Parse /proc/PID/cmdline into words; empty for kernel threads and for processes that have exited.

    A title is one word, and many NULs follow it in the kernel's file.
    """
    text = cmdline.rstrip(b"\0") if cmdline.endswith(b"\0\0\0") else cmdline.removesuffix(b"\0")
    return tuple(word.decode("utf-8", "replace") for word in text.split(b"\0")) if cmdline else ()


def parse_maps(maps: bytes, keep: Callable[[str], bool]) -> tuple[str, ...]:
    """Parse /proc/PID/maps: return the paths of files that `keep` accepts, each (device, inode) once."""
    found: dict[tuple[str, str], str] = {}
    seen: set[str] = set()
    for line in maps.decode("utf-8", "surrogateescape").split("\n"):
        _, slash, rest = line.partition("/")
        if slash and rest not in seen:
            seen.add(rest)
            if keep(f"/{rest}"):
                _, _, _, device, inode, _ = line.split(None, 5)
                found.setdefault((device, inode), f"/{rest}")
    return tuple(found.values())


def parse_run_delay_s(schedstat: bytes) -> float | None:
    """Parse /proc/PID/task/TID/schedstat: return the seconds that a thread was runnable and waited for a CPU.

    None if the kernel does not count them (without CONFIG_SCHED_INFO).
    """
    words = schedstat.split()
    return int(words[1]) / 1e9 if len(words) == 3 else None


# Parse /proc/PID/numa_maps: the memory policies of a process, and the NUMA nodes that hold its pages.
#
# A line describes one *mapping*: a range of addresses with one policy. A mapping without a policy of its
# own has the policy of the process.
#
#     7f00 bind:0-1 heap anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4
#     ^    ^        ^                   ^                           ^
#     address       heap, stack,        1 page on node 0            size of these pages
#          policy   file=… or nothing
#
# A *policy* is the kernel's text: "default", "local", "bind:0-1", "prefer:0", "prefer (many):0-1",
# "interleave:0-1", "weighted interleave:0-1", with flags as in "bind=static:0". See numa(7).


_MAPPING = r"[0-9a-f]+ (.+?)(?: (?=file=|heap\b|stack\b|huge\b|\w+=\d)(.*))?"
_NODE = r"(?: |^)N([0-9]{1,5})=([0-9]{1,18})"
_PAGE = r" kernelpagesize_kB=([0-9]{1,9})"


class MemoryMap(Record):
    """The memory of a process without that of files.

    `policy` is the policy of the process, read from its stack or else its heap, which have no policy of their
    own; None if it has neither. `nodes` are (NUMA node, bytes) pairs in the order of nodes. Pages that were
    never written are on no node.
    """

    policy: str | None
    nodes: tuple[tuple[int, int], ...]


def parse_numa_maps(text: str) -> MemoryMap:
    """Parse the text of /proc/PID/numa_maps; malformed lines are skipped."""
    policies, sizes = dict[str, str](), Counter[int]()
    for match in (re.fullmatch(_MAPPING, line) for line in text.split("\n")):
        rest = (match[2] or "") if match else ""
        if match and not rest.startswith("file="):
            policies.setdefault(rest.partition(" ")[0], match[1])
            page = re.search(_PAGE, rest)
            for node, pages in re.findall(_NODE, rest):
                sizes[int(node)] += int(pages) * (int(page[1]) << 10 if page else 0)
    policy = policies.get("stack", policies.get("heap"))
    return MemoryMap(policy=policy, nodes=tuple(sorted(sizes.items())))


def parse_policy(line: str) -> str | None:
    """Return the policy in a line of /proc/PID/numa_maps; None if it is malformed."""
    match = re.fullmatch(_MAPPING, line)
    return match[1] if match else None
