"""How many more tasks (processes and threads) a process may start, with its descendants.

    <cgroup>/pids.max                      of its cgroup and of all ancestors, beside pids.current
    proc/self/limits                       "Max processes": RLIMIT_NPROC, which counts all tasks of the user
    proc/sys/kernel/threads-max, pid_max   for all tasks of the system, whose number is in proc/loadavg

The first task beyond a limit fails: fork and pthread_create return EAGAIN.
"""

from collections.abc import Iterator

from ompbind.cpuset import CpuSet, parse_set
from ompbind.machine.model import TaskLimit
from ompbind.machine.read.linux_cgroup import read_directories
from ompbind.machine.read.root import Root, read_word
from ompbind.procfs.parsers import status_value
from ompbind.text import whole_number

_EXEMPT = {21, 24}  # CAP_SYS_ADMIN, CAP_SYS_RESOURCE: RLIMIT_NPROC does not limit processes that have one
_ALL_USERS = "4294967295"  # another user namespace has fewer users, and even its root is limited
_MANY = 1 << 11  # with so many tasks left, no process is read to count the tasks of the user


def read_task_limit(root: Root) -> TaskLimit | None:
    """Return the limit of the reading process that leaves the fewest tasks, None if there is no limit."""
    return min(_list_limits(root), key=lambda limit: limit.left, default=None)


def _list_limits(root: Root) -> Iterator[TaskLimit]:
    for directory in read_directories(root, {"pids"}):
        most, used = (
            whole_number(read_word(root, f"{directory}/pids.{name}")) for name in ("max", "current")
        )
        if most is not None:
            yield TaskLimit(name=f"pids.max of /{directory}", limit=most, used=used or 0)
    tasks = whole_number((root.read("proc/loadavg") or "").partition("/")[2].partition(" ")[0]) or 0
    for name in ("threads-max", "pid_max"):
        most = whole_number(read_word(root, f"proc/sys/kernel/{name}"))
        if most is not None:
            yield TaskLimit(name=f"kernel.{name}", limit=most, used=tasks)
    status = root.read("proc/self/status") or ""
    user, lines = _read_user(status), (root.read("proc/self/limits") or "").splitlines()
    words = next((line.split() for line in lines if line.startswith("Max processes")), [])
    most = whole_number("".join(words[2:3]))  # the soft limit; "unlimited" is no number
    capabilities = parse_set(status_value(status, "CapEff"), CpuSet.from_mask) or ()
    is_exempt = user == "0" or bool(_EXEMPT.intersection(capabilities))
    has_all_users = (root.read("proc/self/uid_map") or _ALL_USERS).split()[-1:] == [_ALL_USERS]
    if most is None or not user or (is_exempt and has_all_users):
        return
    if most - tasks < _MANY:
        pids = (name for name in root.names("proc") if whole_number(name))
        processes = (root.read(f"proc/{pid}/status") or "" for pid in pids)
        of_user = (text for text in processes if _read_user(text) == user)
        tasks = sum(whole_number(status_value(text, "Threads")) or 0 for text in of_user)
    yield TaskLimit(name=f"'ulimit -u' (RLIMIT_NPROC) of user {user}", limit=most, used=tasks)


def _read_user(status: str) -> str:
    return "".join((status_value(status, "Uid") or "").split()[:1])
