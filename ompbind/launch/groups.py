"""Process groups: signalling them, and telling in which of them anybody lives."""

import os
from collections.abc import Collection


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False when nobody is left in it, or nobody that may be signalled."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def living(groups: Collection[int]) -> set[int]:
    """Return those of `groups` that have a member that is not a zombie.

    An orphan that has ended stays a member until the first process of the system, or of its
    container, reaps it; some take their time, and some never do.
    """
    found = {group for group in groups if signal_group(group, 0)}
    if not found:
        return found
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return found
    return found & {group for group in map(_group_if_living, pids) if group is not None}


def _group_if_living(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, group = file.read().rpartition(b")")[2].split()[:3]
    except (OSError, ValueError):
        return None
    return None if state in b"ZX" else int(group)
