"""Parse files that show what a process does: its command, mapped files, scheduling counters, locks.

See proc(5): bytes or text → values.
"""

from collections.abc import Callable


def parse_command(cmdline: bytes) -> tuple[str, ...]:
    """Parse /proc/PID/cmdline into words; empty for kernel threads and for processes that have exited."""
    words = cmdline.removesuffix(b"\0").split(b"\0") if cmdline else []
    return tuple(word.decode("utf-8", "replace") for word in words)


def parse_maps(maps: bytes, keep: Callable[[str], bool]) -> tuple[str, ...]:
    """Parse /proc/PID/maps: return the paths of mapped files that `keep` accepts, each (device, inode) once.

    A file that has replaced another under the same path counts as a second file.
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
    """Parse /proc/PID/task/TID/sched: return the migrations of a thread; None if they are not counted."""
    _, found, rest = sched.partition(b"nr_migrations")
    return int(rest.partition(b":")[2].split(None, 1)[0]) if found else None


def parse_run_delay_s(schedstat: bytes) -> float | None:
    """Parse /proc/PID/task/TID/schedstat: return the seconds that a thread was runnable and waited for a CPU.

    None if the kernel does not count them (the file is empty or missing without CONFIG_SCHED_INFO).
    """
    words = schedstat.split()
    return int(words[1]) / 1e9 if len(words) == 3 else None


def parse_lock_holder(text: str, file: str) -> int | None:
    """Return the process that has locked a file with flock; None if it is unknown.

    `text` is that of /proc/locks, `file` is "MAJOR:MINOR:INODE" with hexadecimal device numbers. The kernel
    shows 0 or -1 for a process of another PID namespace.
    """
    for line in text.splitlines():
        match line.split():
            case [_, "FLOCK", _, _, pid, found, *_] if found == file and pid.isdigit():
                return int(pid) or None
    return None
