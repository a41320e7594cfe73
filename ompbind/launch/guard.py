"""The guard: a process that ends every rank when ompbind itself is killed without a chance to.

It is forked before any rank, in a session of its own, and holds the reading end of a pipe whose
writing end ompbind keeps. Every rank tells its process group there before it executes its command,
while it still holds the pipe itself, so that no rank can be missed: the pipe only ends after all that
were forked have told. When it ends without a farewell, the guard kills the groups that are left. It also
keeps the run's claim open, and takes it back when these groups are gone: their CPUs are in use until then.
"""

import os
import signal
import time

from ompbind.launch.claims import Claim, release
from ompbind.launch.groups import living, signal_group
from ompbind.record import Record

_FAREWELL = b"."

GONE_S = 30.0
"""Seconds to wait for killed groups to be gone; one that is stuck in the kernel may take for ever."""


class Guard(Record):
    """The guard's process, and the end of the pipe that ompbind and starting ranks write to."""

    pid: int
    pipe: int


def start_guard(claim: Claim | None = None) -> Guard:
    """Fork the guard; call it with all signals blocked, before the first rank is forked.

    It is in a session of its own when this returns: what kills the process group of ompbind misses it.
    """
    read_end, write_end = os.pipe()
    waiting, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        _keep_watch(read_end, ready, claim)
    os.close(read_end)
    os.close(ready)
    os.read(waiting, 1)  # ends when the guard closes the other end
    os.close(waiting)
    return Guard(pid=pid, pipe=write_end)


def announce(guard: Guard, group: int) -> None:
    """Put a process group under guard; the rank itself does it, before it executes anything."""
    _tell(guard, b"+%d\n" % group)


def withdraw(guard: Guard, group: int) -> None:
    """Take a process group that is empty from under guard, before its number can be used again."""
    _tell(guard, b"-%d\n" % group)


def dismiss(guard: Guard, *, in_peace: bool) -> None:
    """End the guard: in peace when no rank is left, otherwise it kills those that are."""
    if in_peace:
        _tell(guard, _FAREWELL)
    os.close(guard.pipe)
    try:
        os.waitpid(guard.pid, 0)
    except ChildProcessError:
        pass


def _tell(guard: Guard, words: bytes) -> None:
    try:
        os.write(guard.pipe, words)
    except BrokenPipeError:
        pass  # somebody has killed the guard: the ranks run on without


def _keep_watch(read_end: int, ready: int, claim: Claim | None) -> None:
    """Be the guard: watch the pipe to its end, then kill what is left. Never returns."""
    try:
        os.setsid()
        os.close(ready)
        _take_name()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        os.dup2(read_end, 0)
        for handle in _open_files():
            if claim is None or handle != claim.file:
                _close(handle)
        os.chdir("/")
        words = b"".join(iter(lambda: os.read(0, 1 << 16), b""))
        groups = remaining(words)
        for group in groups:
            signal_group(group, signal.SIGKILL)
        if claim:
            _wait_for_end(groups)
            release(claim)
    finally:
        os._exit(0)


def _wait_for_end(groups: list[int]) -> None:
    """Wait until nobody lives in killed groups, looking ever less often."""
    step_s, give_up_at = 0.002, time.monotonic() + GONE_S
    while living(groups) and time.monotonic() < give_up_at:
        time.sleep(step_s)
        step_s = min(step_s * 1.5, 0.5)


def _open_files() -> list[int]:
    """Return the open files of this process but the first; an upper limit can be a thousand million."""
    try:
        return [int(name) for name in os.listdir("/proc/self/fd") if name != "0"]
    except OSError:
        return list(range(1, 256))


def _close(number: int) -> None:
    try:
        os.close(number)
    except OSError:
        pass  # the listing itself had it open


def _take_name() -> None:
    """Take a name of its own, so that what kills every "ompbind" leaves the guard to do its work."""
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(b"rank-guard")
    except OSError:
        pass  # a name is all that is lost


def remaining(words: bytes) -> list[int]:
    """Return the groups that were announced and not withdrawn; none after a farewell."""
    left: dict[int, None] = {}
    for word in words.split():
        if word == _FAREWELL:
            return []
        if word[:1] == b"+":
            left[int(word[1:])] = None
        else:
            left.pop(int(word[1:]), None)
    return list(left)
