"""Trying what a sandbox may refuse, in a process of its own, so that nothing changes."""

import errno
import os
import struct
from collections.abc import Callable, Mapping

from ompbind.doctor.facts import Calls, Permission

_SET_MEMPOLICY: Mapping[str, int] = {
    "x86_64": 238,
    "aarch64": 237,
    "riscv64": 237,
    "loongarch64": 237,
    "ppc64": 261,
    "ppc64le": 261,
    "s390x": 270,
}
"""The number of the system call on each architecture, as programs of 64 bits call it."""

_DEFAULT = 0
"""The memory policy of processes that have chosen none (MPOL_DEFAULT)."""

_NOT_TRIED = 255
_REFUSALS = (errno.EPERM, errno.EACCES)


def try_calls() -> Calls:
    """Try to bind a process to the CPUs that it has, and to choose the memory policy that there is."""
    return Calls(bind=_try(_bind), memory=_try(_choose_memory))


def _bind() -> int:
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(0))
    except AttributeError:
        return _NOT_TRIED
    return 0


def _choose_memory() -> int:
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if number is None or struct.calcsize("P") != 8:
        return _NOT_TRIED
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.syscall(number, _DEFAULT, None, 0) else 0


def _try(call: Callable[[], int]) -> Permission:
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
        finally:
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
