"""Compare the affinity masks of running threads with the plan of their rank.

The mask M of each thread is compared with the rank's CPUs R, service CPUs included, and its places P
(`diagnosis`):

    M = R, or M is in P            as planned; M in P counts as bound
    M has CPUs outside R           issue "outside", an error
    M is what the cpuset allows    issue "cpuset", an error, if it has changed, or lacks CPUs of the rank
    M is a part of R, not in P     issue "narrowed", an error, if an OpenMP runtime narrowed the thread
                                   issue "confined", a note, if the program, taskset or numactl did

With places (--bind thread, core, exact) the threads on each place are counted. A place may have one thread
on each of its CPUs for each OpenMP runtime. With --bind exact the initial thread must be alone on its place:

    too many threads on a place    issue "stacked", an error, if another place has no thread, and the threads
                                     have worked and waited for each other
                                   issue "crowded", a note, otherwise: a runtime that has not started its
                                     threads leaves places free, and plain threads inherit the first place

The planned binding can be absent although no mask is wrong:

    OpenMP threads that are not on places       issue "unbound", an error, with --bind thread, core and exact
    the first process of the rank was executed  issue "environment", an error, if it has loaded a runtime
      with other OMP_PLACES or OMP_PROC_BIND
    other changes of variables, or in           issue "environment", a note: loky, Ray and vLLM set the
      descendants                               number of threads of their workers on purpose

The memory policy is compared too: issue "memory". The cause of each issue comes from `diagnosis`; issues of
several processes with the same code, cause and masks become one. A *verdict* is all issues of one rank.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from ompbind.commands.rank_variables import OMPBIND_RUN_ID
from ompbind.cpuset import CpuSet, count, join_words, named
from ompbind.inspection import diagnosis
from ompbind.inspection.diagnosis import ExpectedBinding, find_runtimes
from ompbind.inspection.verdict import ThreadIssue, Verdict, sort_issues
from ompbind.machine.read.linux_cgroup import CgroupLimits
from ompbind.openmp.binding import Bind
from ompbind.procfs.process_state import ProcessState
from ompbind.record import Record
from ompbind.text import Severity


class CpusetChange(Record):
    """The limits of the first process of a rank `now`, and `before` if they were read earlier."""

    now: CgroupLimits = CgroupLimits()
    before: CgroupLimits | None = None

    def explains(self, mask: CpuSet, expected: ExpectedBinding) -> bool:
        """Return whether the kernel gives a thread this mask because of the cpuset."""
        allowed = self.now.cpuset
        if not allowed:
            return False
        if mask == allowed and self.before is not None and self.before.cpuset != allowed:
            return True
        left = {allowed, *(each & allowed for each in expected.masks)}
        return mask in left and not expected.cpus <= allowed

    @property
    def text(self) -> str:
        """What has happened; only what the cpuset allows if nothing was read before."""
        now, before = self.now, self.before
        allowed = named("CPU", now.cpuset or ())
        if before is None or before.cpuset is None or before.cpuset == now.cpuset:
            return f"the cpuset of {now.directory} allows only {allowed}"
        planned = named("CPU", before.cpuset)
        if before.directory == now.directory:
            return f"the cpuset of {now.directory} has changed from {planned} to {allowed}"
        way = f"{before.directory} ({planned}) to {now.directory} ({allowed})"
        return f"the process was moved from the cpuset of {way}"


_NOT_READ = CpusetChange()

_ProcessIssue: TypeAlias = tuple[str, Severity, str, ProcessState, tuple[CpuSet, ...]]
"""An issue of one process: its code, its severity, the cause, the process, the masks of its threads."""

_MASKS_SHOWN = 3  # different masks that a text names
_WORKED_S, _WORKED_PART, _WAITED = 0.1, 0.05, 0.25
"""A thread competes for its CPU from this CPU time on, also as a part of that of the busiest thread of the
process, and if its run delay is this part of its own CPU time."""


def judge(
    processes: Iterable[ProcessState],
    expected: ExpectedBinding | None = None,
    change: CpusetChange = _NOT_READ,
) -> Verdict:
    """Compare the processes of one rank with its plan; without a plan, find threads that contend for CPUs.

    `change` is how the cpuset of the first process of the rank has changed, which comes first. Processes of a
    run nested in the rank are skipped, but not the first, to which `ompbind exec` gives another run ID.
    """
    group = tuple(processes)
    if group and expected and (run_id := expected.run_id):
        own = (run_id, group[0].env.get(OMPBIND_RUN_ID, run_id))
        group = tuple(process for process in group if process.env.get(OMPBIND_RUN_ID, run_id) in own)
    expected = expected or diagnosis.guess_expected(group)
    masks = [thread.cpus for process in group for thread in process.threads]
    found = [issue for process in group for issue in _find_wrong_masks(process, expected, group, change)]
    found += [issue for process in group for issue in _find_absent_binding(process, expected, group)]
    merged: dict[tuple[str, str, frozenset[CpuSet]], list[_ProcessIssue]] = {}
    for issue in found:
        code, _, cause, _, wrong = issue
        merged.setdefault((code, cause, frozenset(wrong)), []).append(issue)
    issues = [_make_issue(alike, group, expected) for alike in merged.values()]
    issues.sort(key=lambda issue: -issue.threads)
    runtimes = max(map(find_runtimes, group), key=len, default=())
    many = len(expected.cpus) > 1
    return Verdict(
        issues=sort_issues(issues),
        summary=_summarize(masks, expected),
        processes=len(group),
        threads=len(masks),
        outside=sum(not mask <= expected.cpus for mask in masks),
        narrowed=sum(mask < expected.cpus and mask not in expected.masks for mask in masks),
        bound=sum(mask < expected.cpus and mask in expected.masks for mask in masks),
        stacked=sum(sum(_count_stacked(process).values()) for process in group) if many else 0,
        runtimes=tuple(runtime.kind.label for runtime in runtimes),
    )


def judge_memory_policy(verdict: Verdict, policy: str | None, expected: ExpectedBinding) -> Verdict:
    """Add an issue to a verdict if the memory policy is not the planned one; None is an unknown policy."""
    if policy is None or expected.memory in ("", policy):
        return verdict
    text = f"the memory policy is {policy!r} instead of {expected.memory!r}: "
    text += "the command or a program that started it changed it (set_mempolicy, numactl)"
    return verdict.add(
        ThreadIssue(code="memory", severity=Severity.ERROR, threads=verdict.threads, text=text)
    )


def _count_stacked(process: ProcessState) -> Mapping[CpuSet, int]:
    """Count the threads of a process on each single CPU to which several of its threads are bound."""
    masks = Counter(thread.cpus for thread in process.threads)
    return {mask: number for mask, number in masks.items() if len(mask) == 1 and number > 1}


def _find_wrong_masks(
    process: ProcessState, expected: ExpectedBinding, group: Sequence[ProcessState], change: CpusetChange
) -> Iterator[_ProcessIssue]:
    """Find threads with other masks than planned: outside, narrowed, or too many on a place."""
    wrong = [thread.cpus for thread in process.threads if thread.cpus not in expected.masks]
    changed = tuple(mask for mask in wrong if change.explains(mask, expected))
    if changed:
        yield "cpuset", Severity.ERROR, change.text, process, changed
    wrong = [mask for mask in wrong if mask not in changed]
    outside = tuple(mask for mask in wrong if not mask <= expected.cpus)
    narrowed = tuple(mask for mask in wrong if mask < expected.cpus)
    if outside:
        # If earlier limits are not known, the cpuset may have changed.
        in_cpuset = change.before is None and set(outside) == {change.now.cpuset}
        cause = diagnosis.explain_escape(process, change.now.directory if in_cpuset else "")
        if expected.hold and not in_cpuset:
            cause = "a process outside of the run changed the mask, which --hold does not prevent"
        elif not in_cpuset:
            cause += "; 'ompbind run --hold' keeps programs on their CPUs"
        yield "outside", Severity.ERROR, cause, process, outside
    if narrowed:
        inherited = diagnosis.explain_inheriting(process, narrowed, group)
        # A process that only inherited its mask needs no advice: its parent gets it.
        needs_advice = not inherited or find_runtimes(process)
        by_runtime = diagnosis.explain_narrowing(process, narrowed) if needs_advice else ""
        code, severity, cause = "narrowed", Severity.ERROR, inherited
        if by_runtime:
            cause = f"{by_runtime}; {diagnosis.explain_remedy(process, expected)}"
        elif not inherited:
            cause = diagnosis.explain_without_variable(process, narrowed)
            # A runtime has probably narrowed the initial thread if others share its CPU, while some have
            # another CPU. A program that only pins its initial thread has no threads on another single CPU.
            initial, stacked = process.initial_thread, _count_stacked(process)
            is_shared = initial and initial.cpus < expected.cpus and initial.cpus in stacked
            singles = {thread.cpus for thread in process.threads if len(thread.cpus) == 1}
            if not (is_shared and find_runtimes(process) and len(singles) > 1):
                code, severity = "confined", Severity.NOTE
        yield code, severity, cause, process, narrowed
    if expected.bind not in (Bind.RANK, Bind.NONE):
        yield from _find_place_issues(process, expected, change)


def _find_place_issues(
    process: ProcessState, expected: ExpectedBinding, change: CpusetChange
) -> Iterator[_ProcessIssue]:
    runtimes, initial = find_runtimes(process), process.initial_thread
    first = None  # the place of the initial thread, unless that is the whole rank
    if expected.bind is Bind.EXACT:
        first = expected.places[0] if expected.rank is not None else initial and initial.cpus
    places = [place for place in dict.fromkeys(expected.places) if place != expected.cpus]
    counts = Counter(thread.cpus for thread in process.threads if thread.cpus in places)
    per_cpu = max(1, len(runtimes))
    crowded = [place for place in places if counts[place] > (1 if place == first else per_cpu * len(place))]
    if not crowded:
        return
    masks = tuple(place for place in crowded for _ in range(counts[place]))
    if all(change.explains(place, expected) for place in crowded):
        yield "cpuset", Severity.ERROR, change.text, process, masks
        return
    free = [place for place in places if not counts[place]]
    shared = first if first in crowded and (expected.rank is not None or runtimes) else None
    if shared:
        inherit = "they inherit the place of the initial thread"
        cause = diagnosis.explain_narrowing(process, [shared]) or inherit
        if len(runtimes) > 1:
            cause += f", and the second of {len(runtimes)} OpenMP runtimes sees only that place"
        cause += f"; {diagnosis.explain_remedy(process, expected)}"
    elif not runtimes:
        cause = diagnosis.explain_without_variable(process, ())
    else:
        cause = "more threads than places, or several threads start parallel regions; use --bind rank"
    if free:
        cause += f"; no thread is bound to {_name_masks(free)}"
    busiest_s = max(thread.busy_s for thread in process.threads)
    # threads that have worked, and waited for their CPUs: less only happens beside idle threads
    worked = (each for each in process.threads if each.busy_s >= max(_WORKED_S, _WORKED_PART * busiest_s))
    working = Counter(
        each.cpus for each in worked if each.delay_s is None or each.delay_s >= _WAITED * each.busy_s
    )
    is_working = any(working[place] > (1 if place == first else per_cpu * len(place)) for place in crowded)
    is_error = (free and is_working) or (shared and expected.rank is None)
    code, severity = ("stacked", Severity.ERROR) if is_error else ("crowded", Severity.NOTE)
    yield code, severity, cause, process, masks


def _find_absent_binding(
    process: ProcessState, expected: ExpectedBinding, group: Sequence[ProcessState]
) -> Iterator[_ProcessIssue]:
    masks = tuple(thread.cpus for thread in process.threads)
    changed = diagnosis.find_changed(process, expected)
    cause = diagnosis.explain_changed(process, expected, changed) if changed else ""
    if diagnosis.is_unbound(process, expected):
        written = diagnosis.render_place_variables(process)
        how = f"with {written}" if written else "without places"
        labels = " and ".join(diagnosis.name_runtimes(process))
        cause = cause or f"executed {how}, and {labels} did not bind them"
        yield "unbound", Severity.ERROR, cause, process, masks
    elif changed:
        is_error = process is group[0] and diagnosis.binds(changed, expected)
        yield "environment", Severity.ERROR if is_error else Severity.NOTE, cause, process, masks


def _make_issue(
    alike: Sequence[_ProcessIssue], group: Sequence[ProcessState], expected: ExpectedBinding
) -> ThreadIssue:
    masks = [mask for *_, own in alike for mask in own]
    code, severity, cause, process, _ = alike[0]
    total = sum(len(issue[3].threads) for issue in alike)
    single = f" of {process.name} ({process.pid})" if len(group) > 1 else ""
    whose = f" of {len(alike)} processes" if len(alike) > 1 else single
    who = f"{len(masks)} of {count(total, 'thread')}{whose}" if total > 1 else f"the only thread{whose}"
    verb = "are" if len(masks) > 1 else "is"
    name, of_rank = f"{process.name} ({process.pid})", named("CPU", expected.cpus)
    if code == "environment":
        several = f"{len(alike)} processes, one of them {name}, were"
        text = f"{several if len(alike) > 1 else f'{name} was'} {cause}"
    elif code == "unbound":
        which = f"one of them, {name}," if len(alike) > 1 else "it" if single else name
        text = f"{who} {verb} not bound to places of {of_rank}: {which} was {cause}"
    elif any(not mask <= expected.cpus for mask in masks):
        text = f"{who} may run on {_name_masks(masks)}, the rank has {of_rank}: {cause}"
    elif len(set(masks)) == 1:
        text = f"{who} {verb} restricted to {named('CPU', masks[0])} out of {expected.cpus}: {cause}"
    else:
        by_mask = Counter(masks).most_common()
        parts = [f"{number} on {named('CPU', mask)}" for mask, number in by_mask[:_MASKS_SHOWN]]
        if rest := sum(number for _, number in by_mask[_MASKS_SHOWN:]):
            parts.append(f"{rest} on others")
        text = f"{who} {verb} restricted to parts of {of_rank} ({', '.join(parts)}): {cause}"
    return ThreadIssue(code=code, severity=severity, threads=len(masks), text=text)


def _name_masks(masks: Iterable[CpuSet]) -> str:
    """Name masks, the most frequent first: "CPU 0", "CPUs 0-1 or CPU 3"."""
    found = [mask for mask, _ in Counter(masks).most_common()]
    shown = [named("CPU", mask) for mask in found[:_MASKS_SHOWN]]
    if len(found) > _MASKS_SHOWN:
        shown.append(count(len(found) - _MASKS_SHOWN, "other"))
    return join_words(shown, "or")


def _summarize(masks: Sequence[CpuSet], expected: ExpectedBinding) -> str:
    if not masks:
        return "no threads left"
    whole = sum(mask == expected.cpus for mask in masks)
    where = named("CPU", expected.cpus)
    if whole == len(masks):
        who = f"all {whole} threads are" if whole > 1 else "the only thread is"
        return f"{who} allowed on {where}"
    what = "compute CPUs" if expected.bind is Bind.RANK else "places"
    bound = f"{count(len(masks) - whole, 'thread')} bound to {what}"
    return f"{bound}, {whole} allowed on all of {where}" if whole else f"{bound} of {where}"
