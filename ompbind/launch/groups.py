"""Process groups: signalling them, and telling whether anybody lives in one."""

import os


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False when nobody is left in it, or nobody that may be signalled."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def has_living(group: int) -> bool:
    """Tell whether a process group has a member that is not a zombie.

    An orphan that has ended stays a member until the first process of the system, or of its
    container, reaps it; some take their time, and some never do.
    """
    if not signal_group(group, 0):
        return False
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return True
    return any(_lives_in(group, pid) for pid in pids)


def _lives_in(group: int, pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(its_group) == group and state not in b"ZX"
