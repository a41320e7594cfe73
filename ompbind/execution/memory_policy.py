"""Set the memory policy of the calling thread; processes that it starts inherit the policy.

`read_policy_support` finds out before planning which policies can be set.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ompbind.cpuset import CpuSet, named
from ompbind.errors import LaunchError
from ompbind.execution.syscalls import load_calls, make_mask, parse_mask
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


class SavedPolicy(NamedTuple):
    """The policy of a thread, from get_mempolicy: the mode with its flags, and the node mask as raw bytes."""

    mode: int
    mask: bytes


def read_policy() -> SavedPolicy | None:
    """Return the memory policy of the calling thread; None if it cannot be read. Raises LaunchError."""
    calls = load_calls()
    mode, mask = calls.ctypes.c_int(), calls.ctypes.create_string_buffer(_MAXNODE // 8)
    get = calls.numbers.get_mempolicy
    failed = calls.call(get, calls.ctypes.addressof(mode), mask, _MAXNODE, 0, 0)
    return None if failed else SavedPolicy(mode.value, mask.raw)


def restore_policy(saved: SavedPolicy | None) -> None:
    """Restore a policy of the calling thread; if that fails, or for None, set the kernel's default."""
    if saved is None or _set(saved.mode, *((saved.mask, _MAXNODE) if any(saved.mask) else (0, 0))):
        reset_policy()


def reset_policy() -> int:
    """Set the kernel's default policy in the calling thread; returns 0 or an errno. Raises LaunchError."""
    return -_set(_DEFAULT, 0, 0)


def _set(mode: int, mask: bytes | int, maxnode: int) -> int:
    calls = load_calls()
    return calls.call(calls.numbers.set_mempolicy, mode, mask, maxnode)


def set_policy(policy: MemoryPolicy) -> None:
    """Set a memory policy in the calling thread and read it back; raises LaunchError.

    Reading back is needed: if only some nodes are allowed, the kernel uses these and reports no error.
    """
    word_bytes = load_calls().word_bytes
    mask = make_mask(CpuSet(policy.nodes), MAX_NODES // 8, word_bytes)
    failed = -_set(policy.kernel_mode, mask, _MAXNODE)
    if failed:
        raise _make_error(policy, failed)
    current = read_policy()
    if current and (nodes := parse_mask(current.mask, word_bytes)) != CpuSet(policy.nodes):
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
