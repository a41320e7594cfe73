"""Hold ranks on their CPUs (--hold): decide what each call of sched_setaffinity in a rank may do.

The supervisor installs a filter in itself, before it starts ranks: they inherit it, as do all processes that
they start. A thread that makes the call waits, and the supervisor reads a *notification* from its *listener*:

    the call asks for                       what happens
    only CPUs of the rank                   the kernel does the call (CONTINUE), with its own errors
    some CPUs of the rank, and others       the supervisor sets those of the rank
    only other CPUs                         the supervisor sets all CPUs of the rank
    CPUs that do not exist, a bad address   the kernel does the call: it refuses

The rank of the thread that is to be bound counts. Its process group shows the rank: each rank leads one. A
process that has left it has the variables of its rank, or an ancestor that has them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from ompbind.commands.rank_variables import find_rank
from ompbind.cpuset import EMPTY, CpuSet, named, union
from ompbind.execution.orphans import read_group
from ompbind.execution.outcome import HeldCalls
from ompbind.execution.seccomp import LARGEST_MASK, install, set_mask
from ompbind.execution.syscalls import load_calls, parse_mask
from ompbind.machine.model import MAX_CPUS
from ompbind.planning.request import Hold
from ompbind.procfs import reader
from ompbind.procfs.parsers import status_value
from ompbind.text import clean_name

if TYPE_CHECKING:
    from ompbind.execution.ranks import Run

_CONTINUE = 1  # the flag of an answer: the kernel does the call
_NOTIFICATION, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_IS_VALID = 0x40082102 if os.uname().machine.startswith("ppc") else 0x80082102  # the form of all kernels
_INT = 0xFFFFFFFF  # the bits that the kernel reads of the number of a thread, and of a size

_ALL = CpuSet.from_bits((1 << MAX_CPUS) - 1)


def hold(run: Run, mode: Hold) -> None:
    """Hold all ranks that the run will start; raises LaunchError."""
    listener = install(mode)
    run.set_mask = set_mask
    if mode is Hold.ANSWERED:
        holder = Holder(run, listener)
        run.loop.listen(listener, holder.answer)
        run.count_held = holder.count


class Holder:
    """Answers the calls of all ranks of a run, and counts them."""

    def __init__(self, run: Run, listener: int) -> None:
        self._run = run
        self._listener = listener
        self._calls = 0
        self._outside: Counter[tuple[int, str]] = Counter()
        self._usable = run.cpus
        with suppress(OSError):  # it is refused: so it is for the first rank, and that error names it
            set_mask(0, _ALL)
            self._usable = CpuSet(os.sched_getaffinity(0))  # the cpuset, which may get more later
            set_mask(0, run.cpus)

    def count(self) -> HeldCalls:
        """Return the calls so far."""
        outside = ((*whose, calls) for whose, calls in sorted(self._outside.items()))
        return HeldCalls(calls=self._calls, outside=tuple(outside))

    def answer(self) -> None:
        """Receive one call, and answer it; without an answer its thread would wait for ever."""
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except OSError:  # its thread was killed, or has left the call for a signal
            return
        call, tid, *_, target, size, address, _, _, _ = _NOTIFICATION.unpack(buffer)
        self._calls += 1
        try:
            failed, flags = self._decide(call, tid, target & _INT, _read_mask(tid, address, size & _INT))
        except (OSError, OverflowError):  # the latter for a negative number of a thread
            failed, flags = 0, _CONTINUE
        with suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(call, 0, failed, flags))

    def _decide(self, call: int, tid: int, target: int, asked: CpuSet) -> tuple[int, int]:
        """Set the CPUs that a call may have; returns its result, and the flags of the answer."""
        thread = self._find_thread(tid, target)
        rank, cpus = self._find_cpus(thread or tid, is_caller=thread in (None, tid))
        fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", call))  # else other threads have its numbers
        if cpus is None or asked <= cpus:
            return 0, _CONTINUE
        given, known = asked & cpus or cpus, asked & self._usable
        if rank is not None and known != self._usable and not known <= cpus:
            self._note_outside(rank, tid, known, given)
        try:
            if thread and not known:
                set_mask(thread, asked)  # fails if these CPUs do not exist
            if thread:
                set_mask(thread, given)
        except OSError as error:
            return -(error.errno or errno.EINVAL), 0
        return 0, 0

    def _find_thread(self, tid: int, target: int) -> int | None:
        """Return the thread that a caller means by `target`; None for another process in a PID namespace.

        A caller in a PID namespace of its own gives a number of that namespace: of its threads it is known.
        """
        if target in (0, tid) or len(_read_numbers(tid)) <= 1:
            return target or tid
        threads = (tid, *reader.list_threads(tid))
        return next((each for each in threads if _read_numbers(each)[-1:] == [str(target)]), None)

    def _find_cpus(self, tid: int, *, is_caller: bool) -> tuple[int | None, CpuSet | None]:
        """Return the rank of a thread and its CPUs; None for no rank, and for CPUs if they are not held.

        All ranks together have the CPUs of a descendant whose rank is not known, as of `env -i setsid`. Each
        caller is a descendant, also if its parents are hidden.
        """
        run, group = self._run, read_group(tid)
        child = run.children.get(group)
        owner = child.owner if child else run.orphans.groups.get(group)
        rank = owner[0] if owner else None
        is_descendant, me = is_caller, os.getpid()
        while rank is None and tid != me and (stat := reader.read_stat(tid)):
            rank = find_rank(reader.read_environ(tid) or {}, run.options.run_id)
            tid = stat.parent
            is_descendant |= tid == me
            if rank is None and tid in run.children:
                rank = run.children[tid].owner[0]
        if rank is None and is_descendant:
            return None, union(command.cpus or EMPTY for command, _ in run.starts.values())
        if rank is None or rank not in run.starts:  # a check of --ready is of no rank
            return None, None
        return rank, run.starts[rank][0].cpus

    def _note_outside(self, rank: int, tid: int, asked: CpuSet, given: CpuSet) -> None:
        program = _read_program(tid, reader.read_file(f"/proc/{tid}/comm"))
        if all(program != known for _, known in self._outside):
            name, wanted = self._run.starts[rank][0].name, named("CPU", asked)
            stays = f"and stays on {named('CPU', given)} (--hold)"
            self._run.output.message(f"{name}: {program} asked for {wanted}, {stays}")
        self._outside[rank, program] += 1


@lru_cache(1000)
def _read_program(tid: int, _name: bytes) -> str:
    """Return the name of the process of a thread; `_name` is that of the thread, new after each exec."""
    process = status_value(reader.read_status(tid), "Tgid") or tid
    return clean_name(status_value(reader.read_status(process), "Name") or "?")


def _read_numbers(tid: int) -> list[str]:
    """Return the numbers of a thread in the PID namespaces it is in, the innermost last; [] if it exits."""
    with suppress(OSError):
        return (status_value(reader.read_status(tid), "NSpid") or "").split()
    return []


def _read_mask(tid: int, address: int, size: int) -> CpuSet:
    """Read the mask of a call from the memory of its thread; all CPUs if it may not be read, else EMPTY."""
    try:
        memory = os.open(f"/proc/{tid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # a process that is not dumpable, or ptrace_scope 2 or 3
        return _ALL
    try:
        mask = os.pread(memory, min(size, LARGEST_MASK), address)
        return parse_mask(mask, load_calls().word_bytes)
    except (OSError, OverflowError):
        return EMPTY  # no such address: the kernel refuses it too
    finally:
        os.close(memory)
