"""Taking the memory policy of a rank: the calling thread has it, and so has every process that it starts.

Whether policies can be had at all is found out before any rank starts. Nothing here is loaded unless a
policy is asked for.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from ompbind.cpuset import CpuSet, named
from ompbind.errors import LaunchError
from ompbind.execution.memory_abi import DEFAULT, MAXNODE, Abi, find_abi, make_nodemask, parse_nodemask
from ompbind.planning.memory_policy import NARROWED, unset_note
from ompbind.planning.plan import PREFERRED_MANY, MemoryPolicy, Note, Placement, Plan
from ompbind.procfs.process import status_value
from ompbind.procfs.reader import read_status
from ompbind.record import Record

_NODES = "/sys/devices/system/node"
_CONTAINERS = "containers allow it with --cap-add SYS_NICE, or a seccomp profile that has set_mempolicy"


class Before(Record):
    """The policy that a thread had: its mode, with flags, and its mask of nodes as the kernel wrote it."""

    mode: int
    mask: bytes


class _Kernel(Record):
    """How to call the kernel; `call` takes a system call's number and arguments, returns 0 or an errno."""

    abi: Abi
    call: Callable[..., int]


@cache
def _find_kernel() -> _Kernel:
    """Find out how to call the kernel; raises LaunchError where that is not known."""
    try:
        import ctypes  # late: few runs have memory policies
    except ImportError as error:
        message = "this Python has no ctypes to set memory policies with"
        raise LaunchError(message, hint="numactl can") from error
    library = ctypes.CDLL(None, use_errno=True)
    # What follows the first argument is variable, and every one is a long or a pointer.
    library.syscall.argtypes, library.syscall.restype = (ctypes.c_long,), ctypes.c_long
    machine, triplet = os.uname().machine, getattr(sys.implementation, "_multiarch", "")
    word_bytes = ctypes.sizeof(ctypes.c_long)
    abi = find_abi(machine, word_bytes, triplet, is_big_endian=sys.byteorder == "big")
    if abi is None:
        message = f"ompbind does not know the system calls for memory policies on {machine}"
        raise LaunchError(message, hint="numactl may know them")

    def call(number: int, *arguments: "int | bytes | ctypes.Array[ctypes.c_char]") -> int:
        longs = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
        return ctypes.get_errno() if library.syscall(number, *longs) == -1 else 0

    return _Kernel(abi=abi, call=call)


def read_policy() -> Before | None:
    """Return the memory policy of the calling thread; None where it cannot be read."""
    kernel = _find_kernel()
    import ctypes  # here it is there

    mode, mask = ctypes.c_int(), ctypes.create_string_buffer(MAXNODE // 8)
    failed = kernel.call(kernel.abi.get, ctypes.addressof(mode), mask, MAXNODE, 0, 0)
    return None if failed else Before(mode=mode.value, mask=mask.raw)


def put_back(before: Before | None) -> None:
    """Give the calling thread the policy back that it had, the kernel's default where that cannot be."""
    if before is not None:
        kernel = _find_kernel()
        mask = (before.mask, MAXNODE) if any(before.mask) else (0, 0)
        if kernel.call(kernel.abi.set, before.mode, *mask) == 0:
            return
    reset_policy()


def reset_policy() -> int:
    """Give the calling thread the kernel's default policy; returns 0, or the number of the error.

    Raises LaunchError where it is not known how to call the kernel.
    """
    kernel = _find_kernel()
    return kernel.call(kernel.abi.set, DEFAULT, 0, 0)


def take_policy(policy: MemoryPolicy) -> None:
    """Have a memory policy in the calling thread, and read back that it holds; raises LaunchError.

    The kernel takes a mask of which only some nodes are allowed, and uses fewer without a word.
    """
    kernel = _find_kernel()
    mask = make_nodemask(CpuSet(policy.nodes), kernel.abi)
    failed = kernel.call(kernel.abi.set, policy.kernel_mode, mask, MAXNODE)
    if failed:
        raise _refused(policy, failed)
    now = read_policy()
    if now is not None:
        given = parse_nodemask(now.mask, kernel.abi)
        if given != CpuSet(policy.nodes):
            asked = f"asked for memory of {_nodes(policy)}"
            raise LaunchError(f"{asked}, the kernel gave only {given}", hint=_allowed())


@contextmanager
def having_policy(policy: MemoryPolicy) -> Iterator[None]:
    """Have a memory policy for a while: what is started then keeps it. Raises LaunchError."""
    before = read_policy()
    try:
        take_policy(policy)
        yield
    finally:
        put_back(before)


class _UnknownError(LaunchError):
    """No node of a policy may be used, or the kernel does not know its mode: it tells the same of both."""


def _refused(policy: MemoryPolicy, number: int) -> LaunchError:
    """Return what it means that the kernel refuses a policy."""
    if number == errno.ENOSYS and not os.path.exists(_NODES):
        return LaunchError("this kernel knows no NUMA nodes, and so no memory policies")
    if number in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        why = os.strerror(number)
        return LaunchError(f"memory policies are forbidden here (set_mempolicy: {why})", hint=_CONTAINERS)
    if number == errno.EINVAL:
        return _UnknownError(f"no memory can be had of {_nodes(policy)}", hint=_allowed())
    return LaunchError(f"no memory policy for {_nodes(policy)}: {os.strerror(number)}")


def _nodes(policy: MemoryPolicy) -> str:
    return named("NUMA node", CpuSet(policy.nodes))


def _allowed() -> str:
    """Tell which nodes this process may have memory of."""
    try:
        told = status_value(read_status("self"), "Mems_allowed_list")
    except OSError:
        return ""
    return f"allowed here: {named('NUMA node', CpuSet.from_list(told))}" if told else ""


def settle_memory(plan: Plan) -> Plan:
    """Try the policies of a plan in this process, and return the plan with those that can be had.

    Notes tell of ranks that get another one, or none. Raises LaunchError when a strict request is not met.
    This process has the policy that it had.
    """
    wanted = dict.fromkeys(one.memory for one in plan.placements)
    tried = {policy: _try(policy) for policy in wanted if policy}
    changed = [one for one in plan.placements if one.memory and tried[one.memory][0] != one.memory]
    notes = tuple(_explain(plan, changed, tried))
    if plan.request.strict and notes:
        raise LaunchError(notes[0].text, hint=f"leave --strict out, or --memory {plan.request.memory}")
    placements = (one.replace(memory=tried[one.memory][0]) if one.memory else one for one in plan.placements)
    return plan.replace(placements=tuple(placements), notes=plan.notes + notes)


_Tried = tuple[MemoryPolicy | None, str]
"""The policy that can be had instead of one: it, or one for fewer nodes, or none, and why there is none."""


def _try(policy: MemoryPolicy) -> _Tried:
    try:
        with having_policy(policy):
            return policy, ""
    except LaunchError as error:
        why = f"{error.message}; {error.hint}" if error.hint else error.message
        if policy.kernel_mode == PREFERRED_MANY and isinstance(error, _UnknownError):
            return _try(policy.narrowed)[0], why
        return None, why


def _explain(plan: Plan, changed: list[Placement], tried: dict[MemoryPolicy, _Tried]) -> Iterator[Note]:
    narrowed: list[str] = []
    unset: dict[str, list[Placement]] = {}
    for one in changed:
        if one.memory:
            given, why = tried[one.memory]
            if given:
                narrowed.append(f"rank {one.rank}: {given.first}")
            else:
                unset.setdefault(why, []).append(one)
    if narrowed:
        text = "this kernel prefers one NUMA node only, from Linux 5.15 on several: "
        yield Note(code=NARROWED, text=text + ", ".join(narrowed), warning=True)
    for why, ranks in unset.items():
        yield unset_note(plan.request.memory, ranks, why)
