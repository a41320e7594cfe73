"""What the kernel says of a process and its threads, as values, and how its text becomes them.

Text and bytes are those of files below /proc/PID, see proc(5). Nothing here reads them: `reader` does.
"""

from collections.abc import Callable, Collection, Mapping

from ompbind.record import Record
from ompbind.text import tidy

GONE = ("Z", "X", "x")
"""The states of what has ended."""

_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}
"""Scheduling policies by their numbers, as `chrt` names them."""

_KERNEL = 0x00200000  # the flag of the kernel's own threads (PF_KTHREAD)


class Stat(Record):
    """The stat file of a process or a thread, as far as it matters; what time it tells of is in clock ticks.

    `state` is one letter, as `ps` has them; `cpu` is the one it ran on last. `arguments` tell where its
    command line lies in its memory: the first address, and the one after the last.
    """

    name: str
    state: str
    parent: int
    group: int
    session: int
    is_kernel: bool
    busy_ticks: int
    start_ticks: int
    cpu: int
    policy: str
    arguments: tuple[int, ...]


def parse_stat(stat: bytes) -> Stat:
    """Read a stat file; the name in it may have any characters, brackets too. Raises ValueError."""
    head, _, tail = stat.rpartition(b")")
    state, *words = tail.split() or (b"",)
    if len(words) <= 37:
        raise ValueError("the stat file is cut short")
    fields = list(map(int, words))
    return Stat(
        name=tidy(head.partition(b"(")[2].decode("utf-8", "replace")),
        state=state.decode(),
        parent=fields[0],
        group=fields[1],
        session=fields[2],
        is_kernel=bool(fields[5] & _KERNEL),
        busy_ticks=fields[10] + fields[11],
        start_ticks=fields[18],
        cpu=fields[35],
        policy=_POLICIES.get(fields[37], str(fields[37])),
        arguments=tuple(fields[44:46]),
    )


def status_value(status: str, key: str) -> str | None:
    """Return one value of a status file, None where there is no such line."""
    _, found, rest = f"\n{status}".partition(f"\n{key}:")
    return rest.partition("\n")[0].strip() if found else None


def parse_command(cmdline: bytes) -> tuple[str, ...]:
    """Read a cmdline file; it is empty for threads of the kernel and for what has ended."""
    words = cmdline.removesuffix(b"\0").split(b"\0") if cmdline else []
    return tuple(word.decode("utf-8", "replace") for word in words)


def parse_environ(environ: bytes) -> dict[str, str]:
    """Read an environ file: the variables by name, as far as the process has not written over them."""
    pairs = (pair.partition("=") for pair in environ.decode("utf-8", "surrogateescape").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def parse_maps(maps: bytes, keep: Callable[[str], bool]) -> tuple[str, ...]:
    """Read those files from a maps file whose paths are to be kept, each (device, inode) once.

    Two files are two, even where one has replaced the other under the same name.
    """
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


def parse_migrations(sched: bytes) -> int | None:
    """Return from a sched file how often a thread has moved to another CPU; None where it is not counted."""
    _, found, rest = sched.partition(b"nr_migrations")
    return int(rest.partition(b":")[2].split(None, 1)[0]) if found else None


def parse_signals(mask: str | None) -> set[int]:
    """Read a set of signals, such as SigCgt of a status file; none where there is no such line."""
    bits = int(mask or "0", 16)
    return {number + 1 for number in range(bits.bit_length()) if bits >> number & 1}


def find_descendants(processes: Mapping[int, Stat], roots: Collection[int]) -> set[int]:
    """Return some processes together with all that descend from them."""
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
