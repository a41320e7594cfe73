"""Try system calls that a sandbox may refuse, in a child process, so that nothing changes."""

import errno
import os
from collections.abc import Callable

from ompbind.doctor.facts import Permission

_NOT_TRIED = 255
_REFUSALS = (errno.EPERM, errno.EACCES)


def rebind() -> int:
    """Bind the process to the CPUs of its affinity mask; return 0."""
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    return 0


def try_call(call: Callable[[], int]) -> Permission:
    """Make a call in a child process, whose exit code is the errno; a sandbox may also kill the child."""
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
        finally:  # any other exception: there is no such call, or its number is unknown on this system
            os._exit(min(code, _NOT_TRIED))
    return interpret_status(os.waitpid(child, 0)[1])


def interpret_status(status: int) -> Permission:
    """Return the permission that the wait status of the child shows."""
    if os.WIFSIGNALED(status):
        return Permission.REFUSED
    code = os.WEXITSTATUS(status)
    if code == errno.ENOSYS:
        return Permission.ABSENT
    if code in _REFUSALS:
        return Permission.REFUSED
    return Permission.GRANTED if code == 0 else Permission.UNKNOWN
