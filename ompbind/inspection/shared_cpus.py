"""Find processes without a plan that share fewer CPUs than they could use: the classic "all on one core".

    shell: CPUs 0-63 --> python: CPU 0, narrowed by libgomp at load --> 64 workers: CPU 0

All workers have the mask of their parent, so that mask proves nothing. The *origin* of a mask is the last
process, from a process up its ancestors, whose parent is allowed on more CPUs: here python. What this parent
and the cpuset of the process allow is what the process could use. Whether an OpenMP runtime made the mask
smaller is read from the libraries and variables of the origin; else it was the program or a user (taskset).

Processes that wait need no CPU. So there is an error, or a warning if no runtime is the cause, only if more
threads are busy than there are CPUs.
"""

from collections.abc import Iterator, Sequence

from ompbind.cpuset import EMPTY, CpuSet, join_words, named
from ompbind.inspection.absent_binding import find_runtimes
from ompbind.inspection.diagnosis import explain_narrowing, explain_without_variable
from ompbind.inspection.verdict import ThreadIssue
from ompbind.procfs.process_state import ProcessState
from ompbind.record import Record
from ompbind.text import Severity

_LEAST_SHARE = 0.05
"""A thread is busy if it ran for at least this share of the time since the last sample."""

_SHOWN = 4  # processes that a text names


class MaskOrigin(Record):
    """The process whose mask became smaller than that of its parent, and the CPUs that could be used.

    `allowed` are the CPUs of the parent that the cpuset allows; empty if they are unknown.
    """

    process: ProcessState
    allowed: CpuSet = EMPTY


class MaskUser(Record):
    """A process without a plan: all the CPUs of its threads, the origin of its mask, its busy threads."""

    process: ProcessState
    cpus: CpuSet
    origin: MaskOrigin
    busy: int


def count_busy(process: ProcessState, before: Sequence[ProcessState], span_s: float) -> int:
    """Count the busy threads of a process that was read `span_s` seconds ago as `before`, if at all.

    A thread is busy if it was running or waiting for a CPU at both times, or has used CPU time in between.
    """
    earlier = {thread.tid: thread for state in before for thread in state.threads}
    busy = 0
    for thread in process.threads:
        old = earlier.get(thread.tid)
        used_s = (thread.busy_s or 0.0) - (old.busy_s or 0.0) if old else 0.0
        is_runnable = thread.state == "R" and (old is None or old.state == "R")
        busy += is_runnable or (old is not None and used_s >= _LEAST_SHARE * span_s)
    return busy


def find_shared_cpus(users: Sequence[MaskUser]) -> Iterator[ThreadIssue]:
    """Yield an issue for each set of CPUs that several processes share although they could use more."""
    by_cpus: dict[CpuSet, list[MaskUser]] = {}
    for user in users:
        if user.cpus < user.origin.allowed and not user.process.is_kernel_thread:
            by_cpus.setdefault(user.cpus, []).append(user)
    for cpus, sharing in by_cpus.items():
        busy = [user for user in sharing if user.busy]
        is_short = len(busy) > 1 and sum(user.busy for user in busy) > len(cpus)
        if is_short:
            yield _make_issue(cpus, busy, is_short=True)
        elif len(sharing) > 1 and len(cpus) == 1:
            yield _make_issue(cpus, sharing, is_short=False)


def _make_issue(cpus: CpuSet, sharing: Sequence[MaskUser], *, is_short: bool) -> ThreadIssue:
    """Describe processes that share CPUs: who, which CPUs they could use, the cause, and what to do."""
    origins = {user.origin.process.pid: user.origin.process for user in sharing}
    first, allowed = next(iter(origins.values())), named("CPU", sharing[0].origin.allowed)
    by_runtime = next(filter(None, map(_explain_runtime, sharing)), "")
    masks = [thread.cpus for thread in first.threads]
    cause = by_runtime or f"{first.name} ({first.pid}): {explain_without_variable(first, masks)}"
    who = f"{len(sharing)} {'busy ' if is_short else ''}processes are restricted to {named('CPU', cpus)}"
    text = f"{who}, although {allowed} are allowed: {cause}"
    if is_short:
        effect = "gives it the CPUs of a plan" if len(origins) == 1 else "gives each its own CPUs"
        pids = " ".join([*map(str, list(origins)[:_SHOWN]), *(["PID..."] if len(origins) > _SHOWN else [])])
        doubt = "" if by_runtime else "if this is not intended, "
        text += f"; {doubt}'ompbind rebind {pids}' {effect}"
        text += ", and a start with 'ompbind run' prevents it" if by_runtime else ""
    names = [f"{user.process.name} ({user.process.pid})" for user in sharing[:_SHOWN]]
    names += [f"{len(sharing) - _SHOWN} more"] if len(sharing) > _SHOWN else []
    text += f"; the processes are {join_words(names)}"
    severity = (Severity.ERROR if by_runtime else Severity.WARNING) if is_short else Severity.NOTE
    threads = sum(len(user.process.threads) for user in sharing)
    return ThreadIssue(code="shared", severity=severity, threads=threads, text=text)


def _explain_runtime(user: MaskUser) -> str:
    """Return how a runtime made the mask of the origin smaller; "" if none did.

    A program may have set the variables itself: then only processes that it has started since show them.
    """
    origin = user.origin.process
    masks = [(origin.initial_thread or origin.threads[0]).cpus]
    cause = explain_narrowing(origin, masks)
    if not cause and find_runtimes(origin):
        cause = explain_narrowing(user.process, masks)
    return f"in {origin.name} ({origin.pid}) {cause}" if cause else ""
