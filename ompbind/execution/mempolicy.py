"""Set the memory policy of the calling thread; processes that it starts inherit the policy.

`replace_unsupported_policies` finds out before any rank starts which policies of a plan can be set.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from ompbind.cpuset import CpuSet, named
from ompbind.errors import LaunchError
from ompbind.execution.syscalls import Abi, Syscalls, load_syscalls
from ompbind.machine.model import MAX_NODES
from ompbind.planning.memory import NARROWED, make_unset_note
from ompbind.planning.plan import PREFERRED_MANY, MemoryPolicy, Note, Placement, Plan
from ompbind.planning.request import MemoryMode
from ompbind.procfs.parsers import status_value
from ompbind.procfs.reader import read_status
from ompbind.record import Record

_NODES = "/sys/devices/system/node"
_WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"
_CONTAINER_HINT = "containers allow it with --cap-add SYS_NICE, or a seccomp profile that has set_mempolicy"


class SavedPolicy(Record):
    """The policy of a thread, from get_mempolicy: the mode with its flags, and the node mask as raw bytes."""

    mode: int
    mask: bytes


@cache
def _load_policy_calls() -> Syscalls:
    """Return the system calls of this machine; raises LaunchError if they are unknown."""
    try:
        return load_syscalls()
    except LaunchError as error:
        message = f"memory policies cannot be set: {error.message}"
        raise LaunchError(message, hint="use numactl") from error


def read_policy() -> SavedPolicy | None:
    """Return the memory policy of the calling thread; None if it cannot be read."""
    syscalls = _load_policy_calls()
    import ctypes  # noqa: PLC0415 - door: loads libffi; cannot fail after load_syscalls

    mode, mask = ctypes.c_int(), ctypes.create_string_buffer(MAXNODE // 8)
    failed = syscalls.call(syscalls.abi.get_mempolicy, ctypes.addressof(mode), mask, MAXNODE, 0, 0)
    return None if failed else SavedPolicy(mode=mode.value, mask=mask.raw)


def restore_policy(saved: SavedPolicy | None) -> None:
    """Restore a policy of the calling thread; if that fails, or for None, set the kernel's default."""
    if saved is not None:
        syscalls = _load_policy_calls()
        mask = (saved.mask, MAXNODE) if any(saved.mask) else (0, 0)
        if syscalls.call(syscalls.abi.set_mempolicy, saved.mode, *mask) == 0:
            return
    reset_policy()


def reset_policy() -> int:
    """Set the kernel's default policy in the calling thread; returns 0 or an errno.

    Raises LaunchError if the system calls are unknown.
    """
    syscalls = _load_policy_calls()
    return -syscalls.call(syscalls.abi.set_mempolicy, DEFAULT, 0, 0)


def set_policy(policy: MemoryPolicy) -> None:
    """Set a memory policy in the calling thread and read it back; raises LaunchError.

    Reading back is needed: if only some nodes are allowed, the kernel uses these and reports no error.
    """
    syscalls = _load_policy_calls()
    mask = make_nodemask(CpuSet(policy.nodes), syscalls.abi)
    failed = -syscalls.call(syscalls.abi.set_mempolicy, policy.kernel_mode, mask, MAXNODE)
    if failed:
        raise _make_error(policy, failed)
    current = read_policy()
    if current is not None:
        nodes = parse_nodemask(current.mask, syscalls.abi)
        if nodes != CpuSet(policy.nodes):
            message = f"requested memory of {_render_nodes(policy)}, the kernel allows only {nodes}"
            raise LaunchError(message, hint=_allowed_hint())


@contextmanager
def temporary_policy(policy: MemoryPolicy | None) -> Iterator[None]:
    """Set a memory policy for a while; processes started meanwhile inherit it. Raises LaunchError.

    None changes nothing.
    """
    if policy is None:
        yield
        return
    saved = read_policy()
    try:
        set_policy(policy)
        yield
    finally:
        restore_policy(saved)


class _InvalidPolicyError(LaunchError):
    """EINVAL: no node of a policy is allowed, or the kernel does not support its mode."""


def _make_error(policy: MemoryPolicy, number: int) -> LaunchError:
    """Return the error for an errno of set_mempolicy."""
    if number == errno.ENOSYS and not os.path.exists(_NODES):
        return LaunchError("this kernel has no NUMA support, so no memory policies")
    if number in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        why = os.strerror(number)
        return LaunchError(f"memory policies are forbidden here (set_mempolicy: {why})", hint=_CONTAINER_HINT)
    if number == errno.EINVAL and policy.mode is MemoryMode.WEIGHTED and not os.path.exists(_WEIGHTS):
        message = "this kernel has no weighted interleave, which needs Linux 6.9 or later"
        return LaunchError(message, hint="use --memory interleave")
    if number == errno.EINVAL:
        message = f"memory of {_render_nodes(policy)} is not available"
        return _InvalidPolicyError(message, hint=_allowed_hint())
    return LaunchError(f"no memory policy for {_render_nodes(policy)}: {os.strerror(number)}")


def _render_nodes(policy: MemoryPolicy) -> str:
    return named("NUMA node", CpuSet(policy.nodes))


def _allowed_hint() -> str:
    """Return a hint that names the allowed nodes of this process, "" if they are unknown."""
    try:
        nodes = status_value(read_status("self"), "Mems_allowed_list")
    except OSError:
        return ""
    return f"allowed here: {named('NUMA node', CpuSet.from_list(nodes))}" if nodes else ""


def replace_unsupported_policies(plan: Plan) -> Plan:
    """Try the policies of a plan in this process, and return the plan without unsupported policies.

    Such a rank gets a policy for one node, or none; notes say why. Raises LaunchError if the request is
    strict and a policy cannot be set. The policy of this process is the same as before.
    """
    policies = dict.fromkeys(placement.memory for placement in plan.placements)
    results = {policy: _try(policy) for policy in policies if policy}
    placements: list[Placement] = []
    narrowed: list[str] = []
    unset: dict[str, list[Placement]] = {}
    for placement in plan.placements:
        supported, why = results[placement.memory] if placement.memory else (None, "")
        placements.append(placement.replace(memory=supported))
        if placement.memory and supported is None:
            unset.setdefault(why, []).append(placement)
        elif supported and supported != placement.memory:
            narrowed.append(f"rank {placement.rank}: {supported.main_node}")
    notes = [make_unset_note(plan.request.memory, ranks, why) for why, ranks in unset.items()]
    if narrowed:
        text = (
            f"this kernel can prefer only one NUMA node (several from Linux 5.15 on): {', '.join(narrowed)}"
        )
        notes.insert(0, Note(code=NARROWED, text=text, warning=True))
    if plan.request.strict and notes:
        raise LaunchError(notes[0].text, hint=f"omit --strict, or --memory {plan.request.memory}")
    return plan.replace(placements=tuple(placements), notes=(*plan.notes, *notes))


def _try(policy: MemoryPolicy) -> tuple[MemoryPolicy | None, str]:
    """Return the policy to use (the same, one for a single node, or None), and the error if any."""
    try:
        with temporary_policy(policy):
            return policy, ""
    except LaunchError as error:
        why = f"{error.message}; {error.hint}" if error.hint else error.message
        if policy.kernel_mode == PREFERRED_MANY and isinstance(error, _InvalidPolicyError):
            return _try(policy.main_node_only)[0], why
        return None, why


# A mask of NUMA nodes is an array of words (C `unsigned long`), whose size and byte order depend on the
# program, not on the kernel.

DEFAULT = 0
"""The mode of a thread without a policy (MPOL_DEFAULT)."""

MAXNODE = MAX_NODES + 1
"""The size of every mask in bits, plus one: the kernel subtracts one from the `maxnode` argument."""


def make_nodemask(nodes: CpuSet, abi: Abi) -> bytes:
    """Make the mask of some nodes for the kernel: words of bits, the first word for the lowest nodes."""
    return _swapped(nodes.bits.to_bytes(MAX_NODES // 8, "little"), abi)


def parse_nodemask(mask: bytes, abi: Abi) -> CpuSet:
    """Return the nodes in a mask from the kernel."""
    return CpuSet.from_bits(int.from_bytes(_swapped(mask, abi), "little"))


def _swapped(mask: bytes, abi: Abi) -> bytes:
    """Reverse the bytes of each word if the interface is big-endian."""
    if not abi.is_big_endian:
        return mask
    words = range(0, len(mask), abi.word_bytes)
    return b"".join(mask[at : at + abi.word_bytes][::-1] for at in words)
