"""Whether the threads of a rank, or of any other processes, may run where they should, in words.

A *finding* is one thing that is not as the plan has it, with its cause as far as that can be told. A
*verdict* is all findings on one rank, worst first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.cpuset import CpuSet, count, named
from ompbind.inspection.diagnosis import (
    advise,
    explain_escape,
    explain_inheriting,
    explain_narrowing,
    explain_own,
    guess_expected,
)
from ompbind.inspection.expectation import Expected
from ompbind.inspection.processes import find_runtimes
from ompbind.inspection.verdict import ThreadIssue, Verdict
from ompbind.openmp.binding import Bind
from ompbind.planning.rank_variables import OMPBIND_RUN_ID
from ompbind.procfs.process_state import ProcessState
from ompbind.record import Record
from ompbind.severity import Severity


class _Part(Record):
    """What is found in one process; the same in several processes is told once."""

    code: str
    severity: Severity
    process: ProcessState
    masks: tuple[CpuSet, ...]
    cause: str


_SHOWN = 3  # different masks that a text names


def judge(processes: Iterable[ProcessState], expected: Expected | None = None) -> Verdict:
    """Judge the processes of one rank against its plan; without one, whether they are in their own way.

    Those that belong to a run inside the rank are left out: they have plans of their own.
    """
    run_id = expected.run_id if expected else ""
    kin = tuple(one for one in processes if run_id in ("", one.env.get(OMPBIND_RUN_ID, run_id)))
    plan = expected or guess_expected(kin)
    masks = [thread.cpus for process in kin for thread in process.threads]
    parts = [part for process in kin for part in _look_at(process, plan, kin)]
    runtimes = max(map(find_runtimes, kin), key=len, default=())
    many = len(plan.cpus) > 1
    return Verdict(
        issues=_tell_all(parts, kin, plan),
        summary=_summarize(masks, plan),
        processes=len(kin),
        threads=len(masks),
        outside=sum(not mask <= plan.cpus for mask in masks),
        narrowed=sum(mask < plan.cpus and mask not in plan.masks for mask in masks),
        bound=sum(mask < plan.cpus and mask in plan.masks for mask in masks),
        stacked=sum(sum(_stacks(process).values()) for process in kin) if many else 0,
        runtimes=tuple(one.kind.label for one in runtimes),
    )


def judge_memory(verdict: Verdict, seen: str | None, expected: Expected) -> Verdict:
    """Add to a verdict what is wrong where a rank has another memory policy than planned, if that is told."""
    if seen is None or expected.memory in ("", seen):
        return verdict
    text = (
        f"memory is had by the policy {seen!r}, not by {expected.memory!r}: the command or what started it "
        "has set another one (set_mempolicy, as numactl does)"
    )
    issue = ThreadIssue(code="memory", severity=Severity.ERROR, threads=verdict.threads, text=text)
    return verdict.replace(issues=(issue, *verdict.issues))


def _stacks(process: ProcessState) -> Mapping[CpuSet, int]:
    """Count the threads on each single CPU that several threads of a process have for their own."""
    masks = Counter(thread.cpus for thread in process.threads)
    return {mask: number for mask, number in masks.items() if len(mask) == 1 and number > 1}


def _look_at(process: ProcessState, plan: Expected, kin: Sequence[ProcessState]) -> Iterator[_Part]:
    masks = [thread.cpus for thread in process.threads]
    outside = tuple(mask for mask in masks if not mask <= plan.cpus)
    narrowed = tuple(mask for mask in masks if mask < plan.cpus and mask not in plan.masks)
    if outside:
        cause = explain_escape(process)
        yield _Part(code="outside", severity=Severity.ERROR, process=process, masks=outside, cause=cause)
    if narrowed:
        inherited = explain_inheriting(process, narrowed, kin)  # what is to be done is said of the parent
        told = "" if inherited and not find_runtimes(process) else explain_narrowing(process, narrowed)
        if told or inherited or _looks_trapped(process, plan):
            cause = f"{told}; {advise(plan)}" if told else inherited or explain_own(process, narrowed)
            yield _Part(
                code="narrowed", severity=Severity.ERROR, process=process, masks=narrowed, cause=cause
            )
        else:
            cause = explain_own(process, narrowed)
            yield _Part(code="confined", severity=Severity.NOTE, process=process, masks=narrowed, cause=cause)
    if plan.bind not in (Bind.RANK, Bind.NONE):
        yield from _look_at_places(process, plan)


def _looks_trapped(process: ProcessState, plan: Expected) -> bool:
    """Tell whether a runtime seems to have narrowed the initial thread and some others, but not all."""
    main = process.main
    trapped = main is not None and main.cpus < plan.cpus and _stacks(process).get(main.cpus, 0) > 1
    return bool(trapped and find_runtimes(process) and len({thread.cpus for thread in process.threads}) > 1)


def _look_at_places(process: ProcessState, plan: Expected) -> Iterator[_Part]:
    """Find places with too many threads: one on each CPU for each runtime, on the first the initial one."""
    first = _first_place(process, plan)
    places = [place for place in dict.fromkeys(plan.places) if place != plan.cpus]
    here = Counter(thread.cpus for thread in process.threads if thread.cpus in places)
    room = max(1, len(find_runtimes(process)))
    crowds = [place for place in places if here[place] > (1 if place == first else room * len(place))]
    if not crowds:
        return
    masks = tuple(place for place in crowds for _ in range(here[place]))
    free = [place for place in places if not here[place]]
    trapped = first if first in crowds and (plan.rank is not None or find_runtimes(process)) else None
    severity = Severity.ERROR if free or (trapped and plan.rank is None) else Severity.NOTE
    cause = _explain_crowd(process, plan, trapped)
    if free:
        cause = f"{cause}; no thread is bound to {_names(free)}"
    code = "stacked" if severity is Severity.ERROR else "crowded"
    yield _Part(code=code, severity=severity, process=process, masks=masks, cause=cause)


def _first_place(process: ProcessState, plan: Expected) -> CpuSet | None:
    """Return the place of the initial thread, where it is not all of the rank."""
    if plan.bind is not Bind.EXACT:
        return None
    if plan.rank is None:
        return process.main.cpus if process.main else None
    return plan.places[0]


def _explain_crowd(process: ProcessState, plan: Expected, trapped: CpuSet | None) -> str:
    """Say why places have many threads; `trapped` is the initial thread's, where it is one of them."""
    if trapped:
        cause = explain_narrowing(process, [trapped]) or "they inherit the place of the initial thread"
        if len(find_runtimes(process)) > 1:
            cause += f", and the second of {len(find_runtimes(process))} OpenMP runtimes sees that place only"
        return f"{cause}; {advise(plan)}"
    if not find_runtimes(process):
        return explain_own(process, ())
    return "there are more threads than places, or several threads open parallel regions; use --bind rank"


def _tell_all(parts: Iterable[_Part], kin: Sequence[ProcessState], plan: Expected) -> tuple[ThreadIssue, ...]:
    groups: dict[tuple[str, str, frozenset[CpuSet]], list[_Part]] = {}
    for part in parts:
        groups.setdefault((part.code, part.cause, frozenset(part.masks)), []).append(part)
    found = [_tell(group, kin, plan) for group in groups.values()]
    return tuple(sorted(found, key=lambda one: (-list(Severity).index(one.severity), -one.threads)))


def _tell(parts: Sequence[_Part], kin: Sequence[ProcessState], plan: Expected) -> ThreadIssue:
    masks = [mask for part in parts for mask in part.masks]
    part, process = parts[0], parts[0].process
    total = sum(len(part.process.threads) for part in parts)
    alone = f" of {process.name} ({process.pid})" if len(kin) > 1 else ""
    whose = f" of {len(parts)} processes" if len(parts) > 1 else alone
    who = f"{len(masks)} of {count(total, 'thread')}{whose}" if total > 1 else f"the only thread{whose}"
    if part.code == "outside":
        away = _names([mask - plan.cpus for mask in masks])
        text = f"{who} may run on {away}, outside the rank's {named('CPU', plan.cpus)}: {part.cause}"
    elif len(set(masks)) == 1:
        text = f"{who} may only run on {named('CPU', masks[0])} of {plan.cpus}: {part.cause}"
    else:
        text = f"{who} may only run on parts of {named('CPU', plan.cpus)} ({_shares(masks)}): {part.cause}"
    return ThreadIssue(code=part.code, severity=part.severity, threads=len(masks), text=text)


def _names(masks: Iterable[CpuSet]) -> str:
    """Name masks, those that most threads have first: "CPU 0", "CPUs 0-1, or CPU 3"."""
    found = [mask for mask, _ in Counter(masks).most_common()]
    shown = [named("CPU", mask) for mask in found[:_SHOWN]]
    if len(found) > _SHOWN:
        shown.append(f"{len(found) - _SHOWN} others")
    return ", or ".join(shown)


def _shares(masks: Iterable[CpuSet]) -> str:
    """Say how many threads have which mask: "6 on CPU 0, 1 on CPU 1"."""
    found = Counter(masks).most_common()
    shown = [f"{number} on {named('CPU', mask)}" for mask, number in found[:_SHOWN]]
    if rest := sum(number for _, number in found[_SHOWN:]):
        shown.append(f"{rest} on others")
    return ", ".join(shown)


def _summarize(masks: Sequence[CpuSet], plan: Expected) -> str:
    """Say how threads are bound where nothing is wrong."""
    if not masks:
        return "no thread is left"
    whole = sum(mask == plan.cpus for mask in masks)
    where = named("CPU", plan.cpus)
    if whole == len(masks):
        return f"{f'all {whole} threads' if whole > 1 else 'the only thread'} may run on {where}"
    bound = f"{count(len(masks) - whole, 'thread')} bound to places"
    return f"{bound}, {whole} free on {where}" if whole else f"{bound} of {where}"
