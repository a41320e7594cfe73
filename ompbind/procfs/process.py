"""Parse the stat, status and environ files below /proc/PID, see proc(5): text or bytes → values.

`reader` reads the files, `process_files` parses others.
"""

from collections.abc import Collection, Mapping

from ompbind.record import Record
from ompbind.text import clean_name

EXITED_STATES = ("Z", "X", "x")
"""The states of processes and threads that have exited: zombie, dead."""

_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}
"""Scheduling policies by number (SCHED_*), with the names of `chrt`."""

_KERNEL = 0x00200000  # PF_KTHREAD, the flag of kernel threads
_FIXED_AFFINITY = 0x04000000  # PF_NO_SETAFFINITY


class Stat(Record):
    """A stat file, /proc/PID/stat of a process or /proc/PID/task/TID/stat of a thread; times in clock ticks.

    `state` is a letter as in `ps`. `parent`, `group` and `session` are the IDs of the parent process, the
    process group and the session. `busy_ticks` is user and system time, `start_ticks` the start since boot.
    `has_fixed_affinity`: the kernel refuses to change its affinity mask, as for io_uring before Linux 6.3.
    `resident_pages` are the pages of its process that are in memory. `cpu` is the CPU it last ran on,
    `policy` its scheduling policy. `arguments` are the addresses of its command line in its memory: start and
    end.
    """

    name: str
    state: str
    parent: int
    group: int
    session: int
    is_kernel: bool
    has_fixed_affinity: bool
    busy_ticks: int
    start_ticks: int
    resident_pages: int
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
        start_ticks=fields[18],
        resident_pages=fields[20],
        cpu=fields[35],
        policy=_POLICIES.get(fields[37], str(fields[37])),
        arguments=tuple(fields[44:46]),
    )


def status_value(status: str, key: str) -> str | None:
    """Return the value of a line "KEY: value" in /proc/PID/status; None if there is no such line."""
    _, found, rest = f"\n{status}".partition(f"\n{key}:")
    return rest.partition("\n")[0].strip() if found else None


def parse_environ(environ: bytes) -> dict[str, str]:
    """Parse /proc/PID/environ into variables by name.

    These are the variables at the start of the program; it may have overwritten them since.
    """
    pairs = (pair.partition("=") for pair in environ.decode("utf-8", "surrogateescape").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def parse_signals(mask: str | None) -> set[int]:
    """Parse a signal mask of /proc/PID/status ("SigCgt", hexadecimal); {} for None."""
    bits = int(mask or "0", 16)
    return {number + 1 for number in range(bits.bit_length()) if bits >> number & 1}


def find_descendants(processes: Mapping[int, Stat], roots: Collection[int]) -> set[int]:
    """Return the PIDs of some processes and of all their descendants."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    new = list(roots)
    while new:
        pid = new.pop()
        if pid not in found:
            found.add(pid)
            new.extend(children.get(pid, ()))
    return found
