"""Set the memory policy of the calling thread; processes that it starts inherit the policy.

The C library has no functions for these system calls, so their numbers are here, which differ between
architectures. `read_policy_support` finds out before planning which policies can be set.
"""

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

from ompbind.cpuset import CpuSet, named
from ompbind.errors import LaunchError
from ompbind.machine.model import MAX_NODES, Machine
from ompbind.machine.read.root import DirectoryRoot
from ompbind.planning.memory import map_local_memory
from ompbind.planning.plan import PREFERRED_MANY, MemoryPolicy
from ompbind.planning.request import MemoryMode
from ompbind.procfs.parsers import status_value

_NODES = "/sys/devices/system/node"
_WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"
_CONTAINER_HINT = "containers allow it with --cap-add SYS_NICE, or a seccomp profile that has set_mempolicy"

_DEFAULT = 0  # the mode of a thread without a policy (MPOL_DEFAULT)

_MAXNODE = MAX_NODES + 1
"""The size of every mask in bits, plus one: the kernel subtracts one from the `maxnode` argument."""

_X86, _ARM, _NEW = r"x86_64|i[3-6]86", r"arm.*|aarch64.*", r"riscv.*|loongarch.*"
_CALLS: tuple[tuple[str, tuple[int, ...], tuple[int, int]], ...] = (
    (_X86, (8,), (239, 238)),
    (_X86, (4,), (275, 276)),
    (_ARM, (8,), (236, 237)),
    (_ARM, (4,), (320, 321)),
    (_NEW, (4, 8), (236, 237)),
    (r"ppc.*", (4, 8), (260, 261)),
    (r"s390x?", (4, 8), (269, 270)),
)
"""uname machine, bytes per word (C `unsigned long`) of a program → get_mempolicy, set_mempolicy."""


def find_calls(machine: str, word_bytes: int, triplet: str = "") -> tuple[int, int] | None:
    """Return the numbers of get_mempolicy and set_mempolicy for a program; None if they are not known.

    `machine` is from uname, so it can be the name of a 64-bit kernel for a 32-bit program. `triplet` is the
    multiarch name of the interpreter, "" if it has none; x32 has other numbers than programs of equal words.
    """
    for machines, sizes, numbers in _CALLS:
        if re.fullmatch(machines, machine) and word_bytes in sizes and not triplet.endswith("x32"):
            return numbers
    return None


class SavedPolicy(NamedTuple):
    """The policy of a thread, from get_mempolicy: the mode with its flags, and the node mask as raw bytes."""

    mode: int
    mask: bytes


class _Calls:
    """get_mempolicy and set_mempolicy, which return a result or -errno; raises LaunchError if unknown.

    `word_bytes` is the size of a word (C `unsigned long`).
    """

    def __init__(self) -> None:
        message = "memory policies cannot be set: "
        try:
            import ctypes  # noqa: PLC0415 - door: loads libffi, which some Pythons lack
        except ImportError as error:
            raise LaunchError(f"{message}this Python has no ctypes", hint="use numactl") from error
        self.ctypes = ctypes
        self._library = ctypes.CDLL(None, use_errno=True)
        # syscall() is variadic: every argument must be passed as a long or a pointer.
        self._library.syscall.argtypes, self._library.syscall.restype = (ctypes.c_long,), ctypes.c_long
        machine, self.word_bytes = os.uname().machine, ctypes.sizeof(ctypes.c_long)
        numbers = find_calls(machine, self.word_bytes, getattr(sys.implementation, "_multiarch", ""))
        if numbers is None:
            raise LaunchError(f"{message}unknown system calls on {machine}", hint="use numactl")
        self.get, self.set = (partial(self._call, number) for number in numbers)

    def _call(self, number: int, *arguments: Any) -> int:
        long = self.ctypes.c_long
        converted = (long(value) if isinstance(value, int) else value for value in arguments)
        result: int = self._library.syscall(number, *converted)
        return -self.ctypes.get_errno() if result == -1 else result


_load_calls = cache(_Calls)


def read_policy() -> SavedPolicy | None:
    """Return the memory policy of the calling thread; None if it cannot be read. Raises LaunchError."""
    calls = _load_calls()
    mode, mask = calls.ctypes.c_int(), calls.ctypes.create_string_buffer(_MAXNODE // 8)
    failed = calls.get(calls.ctypes.addressof(mode), mask, _MAXNODE, 0, 0)
    return None if failed else SavedPolicy(mode.value, mask.raw)


def restore_policy(saved: SavedPolicy | None) -> None:
    """Restore a policy of the calling thread; if that fails, or for None, set the kernel's default."""
    if saved is None or _load_calls().set(
        saved.mode, *((saved.mask, _MAXNODE) if any(saved.mask) else (0, 0))
    ):
        reset_policy()


def reset_policy() -> int:
    """Set the kernel's default policy in the calling thread; returns 0 or an errno. Raises LaunchError."""
    return -_load_calls().set(_DEFAULT, 0, 0)


def set_policy(policy: MemoryPolicy) -> None:
    """Set a memory policy in the calling thread and read it back; raises LaunchError.

    Reading back is needed: if only some nodes are allowed, the kernel uses these and reports no error.
    """
    calls = _load_calls()
    failed = -calls.set(policy.kernel_mode, make_nodemask(CpuSet(policy.nodes), calls.word_bytes), _MAXNODE)
    if failed:
        raise _make_error(policy, failed)
    current = read_policy()
    if current and (nodes := parse_nodemask(current.mask, calls.word_bytes)) != CpuSet(policy.nodes):
        wanted = named("NUMA node", CpuSet(policy.nodes))
        message = f"requested memory of {wanted}, the kernel allows only {nodes}"
        raise LaunchError(message, hint=_allowed_hint())


@contextmanager
def temporary_policy(policy: MemoryPolicy) -> Iterator[None]:
    """Set a memory policy for a while; processes started meanwhile inherit it. Raises LaunchError."""
    saved = read_policy()
    try:
        set_policy(policy)
        yield
    finally:
        restore_policy(saved)


class _InvalidPolicyError(LaunchError):
    """EINVAL: no node of a policy is allowed, or the kernel does not support its mode."""


def _make_error(policy: MemoryPolicy, number: int) -> LaunchError:
    if number == errno.ENOSYS and not os.path.exists(_NODES):
        return LaunchError("this kernel has no NUMA support, so no memory policies")
    why, nodes = os.strerror(number), named("NUMA node", CpuSet(policy.nodes))
    if number in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        return LaunchError(f"memory policies are forbidden here (set_mempolicy: {why})", hint=_CONTAINER_HINT)
    if number == errno.EINVAL and policy.mode is MemoryMode.WEIGHTED and not os.path.exists(_WEIGHTS):
        message = "this kernel has no weighted interleave, which needs Linux 6.9 or later"
        return LaunchError(message, hint="use --memory interleave")
    if number == errno.EINVAL:
        return _InvalidPolicyError(f"memory of {nodes} is not available", hint=_allowed_hint())
    return LaunchError(f"no memory policy for {nodes}: {why}")


def _allowed_hint() -> str:
    """Return a hint that names the allowed nodes of this process, "" if they are unknown."""
    nodes = status_value(DirectoryRoot("/").read("proc/self/status") or "", "Mems_allowed_list")
    return f"allowed here: {named('NUMA node', CpuSet.from_list(nodes))}" if nodes else ""


def read_policy_support(machine: Machine, mode: MemoryMode) -> Machine:
    """Return this machine with what its kernel lets this process do with policies of a mode."""
    nodes = sorted({near for found in map_local_memory(machine).values() for near in found})
    if not nodes or mode is MemoryMode.LOCAL:
        return machine
    policy = MemoryPolicy(mode=mode, nodes=tuple(nodes), main_node=nodes[0])
    supported, why = try_policy(policy)
    if supported is None:
        return machine.replace(refused_policies=(*machine.refused_policies, (str(mode), why)))
    return machine.replace(prefers_one_node=True) if supported != policy else machine


def try_policy(policy: MemoryPolicy) -> tuple[MemoryPolicy | None, str]:
    """Return the policy to use (the same, one for a single node, or None), and the error if any."""
    try:
        with temporary_policy(policy):
            return policy, ""
    except LaunchError as error:
        why = f"{error.message}; {error.hint}" if error.hint else error.message
        if policy.kernel_mode == PREFERRED_MANY and isinstance(error, _InvalidPolicyError):
            return try_policy(policy.main_node_only)[0], why
        return None, why


def make_nodemask(nodes: CpuSet, word_bytes: int, byteorder: str = sys.byteorder) -> bytes:
    """Make the mask of some nodes for the kernel: words of bits, the first word for the lowest nodes."""
    return _swapped(nodes.bits.to_bytes(MAX_NODES // 8, "little"), word_bytes, byteorder)


def parse_nodemask(mask: bytes, word_bytes: int, byteorder: str = sys.byteorder) -> CpuSet:
    """Return the nodes in a mask from the kernel."""
    return CpuSet.from_bits(int.from_bytes(_swapped(mask, word_bytes, byteorder), "little"))


def _swapped(mask: bytes, word_bytes: int, byteorder: str) -> bytes:
    if byteorder != "big":
        return mask
    return b"".join(mask[at : at + word_bytes][::-1] for at in range(0, len(mask), word_bytes))
