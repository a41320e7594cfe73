"""Performance counters of ranks, as `perf stat` counts them, by perf_event_open(2).

The supervisor opens each counter on itself, disabled, before it starts ranks. Ranks inherit the counter, and
`execve` enables it there (`enable_on_exec`). So all processes and threads of ranks are counted, and nothing
of ompbind. A count is complete once all of them have exited.

If a task has inherited all counters of its parent, the kernel may swap the counters of both when one runs
after the other. The supervisor then has a counter that the `execve` of a rank has changed, so later ranks are
not counted. One more counter, which is not inherited, prevents this.
"""

import errno
import os
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from ompbind.bench.records import MIGRATIONS
from ompbind.errors import LaunchError
from ompbind.execution.syscalls import load_syscalls
from ompbind.record import Record

_HARDWARE, _SOFTWARE = 0, 1


class CounterEvent(Record):
    """An event that the kernel counts, by the name that perf gives to it.

    `type` and `config` are from linux/perf_event.h. `in_kernel`: it can happen in the kernel only, so users
    who may count nothing in the kernel cannot count it. With `only_user`, the kernel is not counted.
    `is_inherited`: it counts in ranks, not in the supervisor.
    """

    name: str
    type: int
    config: int
    in_kernel: bool = False
    only_user: bool = False
    is_inherited: bool = True


SWITCHES = "context-switches"

EVENTS = (
    CounterEvent(name=MIGRATIONS, type=_SOFTWARE, config=4, in_kernel=True),
    CounterEvent(name="cycles", type=_HARDWARE, config=0),
    CounterEvent(name="instructions", type=_HARDWARE, config=1),
    CounterEvent(name="cache-misses", type=_HARDWARE, config=3),
)
"""All events that are counted, if they are permitted. `wait4` counts context switches at no cost.

On a virtual machine, counting migrations adds 3 µs to the start of a thread, and 0.3 µs to a context switch.
"""

_NOT_INHERITED = CounterEvent(name="dummy", type=_SOFTWARE, config=9, only_user=True, is_inherited=False)
"""Never counts. Only prevents that the kernel swaps counters."""

_ATTRIBUTES = "IIQQQQQIIQ"
"""`struct perf_event_attr` in its first version: type, size, config, sampling, read_format, flags, others."""

_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _ENABLE_ON_EXEC = 0, 1, 5, 12
_FLAG_BITS = 64
_TIMES = 1 | 2  # read_format: after the count, how long it was enabled, and how long it was counted
_COUNT = struct.Struct("=QQQ")
_CLOSE_ON_EXEC = 8
_NOT_PERMITTED = (-errno.EACCES, -errno.EPERM)
_PMUS = Path("/sys/bus/event_source/devices")


class CounterSupport(Record):
    """The events that can be counted here, and (name, errno) pairs of all others."""

    events: tuple[CounterEvent, ...]
    failures: tuple[tuple[str, int], ...]


@cache
def find_events() -> CounterSupport:
    """Find out which events this process may count; users without privileges may not count the kernel."""
    events, failures = [], []
    has_core_kinds = len(list(_PMUS.glob("*/cpus"))) > 1  # each kind would count on its cores only
    for event in EVENTS:
        if event.type == _HARDWARE and has_core_kinds:
            failures.append((event.name, errno.EXDEV))
            continue
        found, file = event, open_counter(event)
        if file in _NOT_PERMITTED and not event.in_kernel:
            found = event.replace(name=f"{event.name}:u", only_user=True)
            file = open_counter(found)
        if file >= 0:
            os.close(file)
            events.append(found)
        else:
            failures.append((event.name, -file))
    return CounterSupport(events=tuple(events), failures=tuple(failures))


def open_counter(event: CounterEvent) -> int:
    """Open a counter for the processes that this thread will start; return its descriptor, or -errno."""
    try:
        syscalls = load_syscalls()
    except LaunchError:
        return -errno.ENOSYS
    attributes = make_attributes(event, is_big_endian=syscalls.abi.is_big_endian)
    return syscalls.call(syscalls.abi.perf_event_open, attributes, 0, -1, -1, _CLOSE_ON_EXEC)


def make_attributes(event: CounterEvent, *, is_big_endian: bool) -> bytes:
    """Return the `struct perf_event_attr` of an event; flag 0 is the first bit in memory."""
    flags = {
        _DISABLED: True,
        _INHERIT: event.is_inherited,
        _EXCLUDE_KERNEL: event.only_user,
        _ENABLE_ON_EXEC: event.is_inherited,
    }
    numbers = (number for number, is_set in flags.items() if is_set)
    bits = sum(1 << (_FLAG_BITS - 1 - number if is_big_endian else number) for number in numbers)
    form = (">" if is_big_endian else "<") + _ATTRIBUTES
    return struct.pack(form, event.type, struct.calcsize(form), event.config, 0, 0, _TIMES, bits, 0, 0, 0)


def open_counters(events: Iterable[CounterEvent]) -> dict[str, int]:
    """Open the counters of some events for the processes that the calling thread will start, by name.

    Events that can no longer be counted are left out.
    """
    if open_counter(_NOT_INHERITED) < 0:
        return {}
    files = ((event.name, open_counter(event)) for event in events)
    return {name: file for name, file in files if file >= 0}


def read_counters(files: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the count of each event, after all ranks have exited.

    If there are more events than counters in hardware, the kernel counts each for a part of the time. Such a
    count is scaled up, as by perf; an event that was never counted is left out.
    """
    found = ((name, _COUNT.unpack(os.read(file, _COUNT.size))) for name, file in files.items())
    return tuple(
        (name, round(count * enabled / running)) for name, (count, enabled, running) in found if running
    )


def explain_missing(support: CounterSupport) -> tuple[str, ...]:
    """Return sentences that say which events are not counted, why, and what helps; () if all are."""
    names: dict[str, list[str]] = {}
    for name, number in support.failures:
        names.setdefault(_REASONS.get(number, os.strerror(number)), []).append(name)
    return tuple(f"not counted: {', '.join(found)}: {reason}" for reason, found in names.items())


_ABSENT = "this machine has no such counters, as most virtual machines"
_REASONS = {
    errno.EACCES: "the kernel does not permit it ('sysctl kernel.perf_event_paranoid=1' does)",
    errno.EPERM: "a filter forbids perf_event_open (containers permit it with --cap-add PERFMON)",
    errno.EXDEV: "this machine has several kinds of cores, each with counters of its own",
    errno.ENOSYS: "this system has no performance counters",
    **dict.fromkeys((errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP), _ABSENT),
}
"""Why an event cannot be counted, by errno."""
