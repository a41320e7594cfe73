"""The seccomp filter that stops each `sched_setaffinity` of a process and of all that it starts.

The kernel answers success and does nothing, or the calling thread waits for the answer of a supervisor. The
supervisor's own calls must not wait for itself: they give OWN_SIZE as the size of the mask, which the filter
lets through. Without CAP_SYS_ADMIN a filter needs `no_new_privs`: sudo and setuid programs get no privileges
then. It is no sandbox: each process that gives OWN_SIZE can leave its CPUs.
"""

import errno
import os
import re
import struct
import sys
from collections.abc import Iterable

from ompbind.cpuset import CpuSet
from ompbind.errors import REFUSED, LaunchError
from ompbind.execution.orphans import call_prctl
from ompbind.execution.syscalls import load_calls, make_mask
from ompbind.machine.model import MAX_CPUS
from ompbind.planning.request import Hold
from ompbind.procfs import reader

SET_AFFINITY = {
    0xC000003E: (203, 203 | 1 << 30),  # x86_64, and x32, whose numbers have one more bit
    0x40000003: (241,),  # i386
    0xC00000B7: (122,),  # aarch64
    0x40000028: (241,),  # arm
    0xC0000015: (222,),  # ppc64le
    0x80000016: (239,),  # s390x
    0xC00000F3: (122,),  # riscv64
}
"""AUDIT_ARCH of a process → its numbers of sched_setaffinity; one machine may run programs of several."""

_MACHINES = "x86_64|i[3-6]86|aarch64.*|arm.*|ppc64le|s390x|riscv64"  # that SET_AFFINITY has, as in uname

OWN_SIZE = 0x6F6D7062
"""The size of the mask, in bytes, that the supervisor gives; the kernel reads as much as it needs."""

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # instructions of BPF
ALLOW, NOTIFY, SUCCEED = 0x7FFF0000, 0x7FC00000, 0x00050000  # the last: error number 0, without the call
_NUMBER_AT, _ARCH_AT, _SIZE_AT = 0, 4, 24  # in struct seccomp_data

_SET_MODE_FILTER, _SPEC_ALLOW, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 2, 1 << 3, 1 << 5
_PR_SET_NO_NEW_PRIVS = 38
_CONTINUES_SINCE = (5, 5)

LARGEST_MASK = MAX_CPUS // 8  # bytes


def make_filter(action: int, byteorder: str = sys.byteorder) -> list[tuple[int, int, int, int]]:
    """Return the filter, instructions of BPF: `action` for sched_setaffinity, ALLOW for all other calls."""
    size_check = 2 + sum(3 + len(numbers) for numbers in SET_AFFINITY.values())
    program = [(LOAD, 0, 0, _ARCH_AT)]
    for arch, numbers in SET_AFFINITY.items():
        program += [(EQUAL, 0, 2 + len(numbers), arch), (LOAD, 0, 0, _NUMBER_AT)]
        for number in numbers:
            program.append((EQUAL, size_check - len(program) - 1, 0, number))
        program.append((RETURN, 0, 0, ALLOW))
    low_word = _SIZE_AT if byteorder == "little" else _SIZE_AT + 4
    program += [(RETURN, 0, 0, ALLOW), (LOAD, 0, 0, low_word)]
    return [*program, (EQUAL, 0, 1, OWN_SIZE), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, action)]


def install(mode: Hold) -> int:
    """Install the filter in this thread; returns the listener, 0 if `fixed`. Raises LaunchError."""
    is_fixed = mode is Hold.FIXED
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if not re.fullmatch(_MACHINES, os.uname().machine):
        raise LaunchError(f"--hold does not support {os.uname().machine}", hint="omit it")
    if not is_fixed and release and (int(release[1]), int(release[2])) < _CONTINUES_SINCE:
        raise _make_error("this kernel has no seccomp notifications", "they need Linux 5.5 or later")
    if not is_fixed and not reader.is_proc_of_pid_namespace():
        raise _make_error("/proc does not show the processes of the run", "mount /proc")
    calls = load_calls()
    program = b"".join(struct.pack("HBBI", *step) for step in make_filter(SUCCEED if is_fixed else NOTIFY))
    buffer = calls.ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HP", len(program) // 8, calls.ctypes.addressof(buffer))
    # Without SPEC_ALLOW, kernels before 5.16 slow memory down. WAIT_KILLABLE, since 5.19, is for signals.
    listening = _SPEC_ALLOW | _NEW_LISTENER
    for flags in (_SPEC_ALLOW, 0) if is_fixed else (listening | _WAIT_KILLABLE, listening):
        result = calls.call(calls.numbers.seccomp, _SET_MODE_FILTER, flags, header)
        if result == -errno.EACCES:
            call_prctl(_PR_SET_NO_NEW_PRIVS, 1)
            result = calls.call(calls.numbers.seccomp, _SET_MODE_FILTER, flags, header)
        if result != -errno.EINVAL:
            break
    if result == -errno.EBUSY:
        what = "another program already answers system calls here"
        raise _make_error(what, "as an enclosing run with --hold, or a container manager")
    if result < 0:
        what, is_both = f"seccomp is refused here: {os.strerror(-result)}", is_fixed or -result in REFUSED
        raise _make_error(what, "allow it", is_both=is_both)
    return result


def _make_error(what: str, hint: str, *, is_both: bool = False) -> LaunchError:
    remedy = ", or omit --hold" if is_both else "; use --hold=fixed if the program need not bind threads"
    return LaunchError(f"--hold: {what}", hint=hint + remedy)


def set_mask(tid: int, cpus: Iterable[int]) -> None:
    """Set the affinity mask of a thread (0: the caller) as os.sched_setaffinity, past the filter."""
    calls = load_calls()
    mask = make_mask(CpuSet(cpus), LARGEST_MASK, calls.word_bytes)
    failed = -calls.call(calls.numbers.sched_setaffinity, tid, OWN_SIZE, mask)
    if failed:
        raise OSError(failed, os.strerror(failed))
