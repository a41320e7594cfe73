"""Trying what a sandbox may refuse, in a process of its own, so that nothing changes."""

import errno
import os
from collections.abc import Callable

from ompbind.doctor.facts import Permission

_NOT_TRIED = 255
_REFUSALS = (errno.EPERM, errno.EACCES)


def rebind() -> int:
    """Bind the process to the CPUs that it has; returns 0."""
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    return 0


def try_call(call: Callable[[], int]) -> Permission:
    """Make a call in a child, which tells the error by its exit code; a sandbox may also kill it."""
    try:
        child = os.fork()
    except OSError:
        return Permission.UNKNOWN
    if child == 0:
        code = _NOT_TRIED
        try:
            code = call()
        except OSError as error:
            code = error.errno or _NOT_TRIED
        finally:  # any other error says that there is no such call, or that nobody knows how it is made here
            os._exit(min(code, _NOT_TRIED))
    return judge(os.waitpid(child, 0)[1])


def judge(status: int) -> Permission:
    """Return what the end of a child that tried tells, by its wait status."""
    if os.WIFSIGNALED(status):
        return Permission.REFUSED
    code = os.WEXITSTATUS(status)
    if code == errno.ENOSYS:
        return Permission.ABSENT
    if code in _REFUSALS:
        return Permission.REFUSED
    return Permission.GRANTED if code == 0 else Permission.UNKNOWN
