"""Inspected processes as tables and as JSON (schema ompbind-inspect/1), and the result of --verify.

The result of --verify is one sentence if there are no errors, else a table of ranks and the reasons.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ompbind.commands.rank_variables import OMPBIND_GROUP, OMPBIND_GROUP_RANK, OMPBIND_RANK_DEVICES
from ompbind.cpuset import CpuSet, count, named, union
from ompbind.inspection.diagnosis import OVERWRITTEN, find_libraries
from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.verdict import OthersLoad, RankVerification, ThreadIssue, Verdict, VerificationResult
from ompbind.openmp.binding import Bind
from ompbind.openmp.variables import OVERRIDING_VARIABLES
from ompbind.planning.plan import Plan
from ompbind.procfs.parsers import MemoryMap
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.report.text import (
    PIPE,
    WIDTH,
    Column,
    Screen,
    clip,
    render_all_cpus,
    render_bytes,
    render_cpus,
    render_paragraph,
    render_table,
    wrap_indented,
)
from ompbind.text import Severity, clean_line, clean_lines

COUNTS = ("threads", "outside", "narrowed", "bound", "stacked")
"""The numbers of a verdict, as JSON names them."""

NO_PROCESSES = "no processes left to inspect"
COMMAND_LIMIT = 64  # characters of a command in text

_VARIABLES_SHOWN = {
    *OVERRIDING_VARIABLES,
    "OMP_NUM_THREADS",
    "LD_PRELOAD",
    "MKL_THREADING_LAYER",
    "OMP_WAIT_POLICY",
}
"""Variables that are always shown; most others only repeat the number of threads."""


def render_inspection(
    inspection: Inspection,
    *,
    each: bool = False,
    problems: bool = False,
    screen: Screen = PIPE,
    shares: Mapping[int, float] | None = None,
) -> str:
    """Render a summary of several groups, and each group with its verdict and tables of its threads.

    Similar threads share a row, and similar processes a table, unless `each` is set. With `problems`, the
    summary is always there, and groups without issues are left out. `shares` is the part of a CPU that each
    thread used since the last inspection, by TID; without it, the tables have the CPU time since the start.
    """
    if not inspection.groups:
        return NO_PROCESSES
    width = screen.text_width
    blocks = []
    if problems or len(inspection.groups) > 1:
        blocks.append(wrap_indented(_render_summary(inspection), width))
    if inspection.shared_issues:
        issues = (
            render_paragraph(str(issue.severity), issue.text, width) for issue in inspection.shared_issues
        )
        blocks.append("\n".join(issues))
    shown = select_problems(inspection) if problems else inspection
    blocks += ["\n".join(_render_group(group, width, each, shares)) for group in shown.groups]
    return "\n\n".join(blocks)


def select_problems(inspection: Inspection) -> Inspection:
    """Return the inspection without groups that have no issues."""
    return inspection.replace(groups=tuple(group for group in inspection.groups if group.verdict.issues))


def _render_summary(inspection: Inspection) -> str:
    groups = inspection.groups
    ranks = sum(group.rank is not None for group in groups)
    others = sum(len(group.processes) for group in groups if group.rank is None)
    who = [count(ranks, "rank")] if ranks else []
    who += [f"{others} {'process' if others == 1 else 'processes'}"] if others else []
    threads = count(sum(group.verdict.threads for group in groups), "thread")
    issues = [*(issue for group in groups for issue in group.verdict.issues), *inspection.shared_issues]
    numbers = Counter(issue.severity for issue in issues)
    counts = [] if numbers[Severity.ERROR] else ["no errors"]
    counts += [count(numbers[severity], str(severity)) for severity in Severity if numbers[severity]]
    return f"{' and '.join(who)} with {threads}: {', '.join(counts)}"


def _render_group(
    group: RankProcesses, width: int, each: bool, shares: Mapping[int, float] | None
) -> Iterator[str]:
    yield wrap_indented(clean_lines(make_title(group)), width)
    if group.verdict.issues:
        for issue in group.verdict.issues:
            yield wrap_indented(clean_lines(f"  {issue.severity}: {issue.text}"), width)
    else:
        yield wrap_indented(clean_lines(f"  ok: {group.verdict.text}"), width)
    memory = dict(group.memory)
    shown_env: Mapping[str, str] = {}
    for alike in [(process,) for process in group.processes] if each else _group_alike(group.processes):
        yield from _render_process(alike, width, shown_env, each, shares)
        first = alike[0]
        if memory_map := memory.get(first.pid):
            parts = [f"{render_bytes(size)} on node {node}" for node, size in memory_map.anonymous_nodes]
            parts += [f"policy {memory_map.policy}"] if memory_map.policy else []
            yield from [wrap_indented(f"    memory: {', '.join(parts)}", width)] if parts else []
        if first.unreadable:
            why = OVERWRITTEN if first.is_environment_overwritten else " by you"
            yield f"    {' and '.join(first.unreadable)}: not readable{why}"
        shown_env = shown_env or first.env


def make_title(group: RankProcesses) -> str:
    """Return the title of a group: "rank 0 of run NAME: CPUs 0-3, bind rank", "process 12"."""
    if group.rank is None or group.expected is None:
        run = f" of run {group.run_id}" if group.run_id else ""
        return f"process {group.first.pid}{run}"
    plan = group.expected
    number = min(len(plan.places), len(plan.cpus))  # if places are unknown, all possible ones are listed
    places = f", {count(number, 'place')}" if number > 1 else ""
    attempt = f", attempt {group.attempt}" if group.attempt > 1 else ""
    cpus = render_all_cpus(plan.compute, plan.service_cpus)
    devices = group.first.env.get(OMPBIND_RANK_DEVICES, "").replace(",", ", ")
    env = group.first.env
    label = f" ({env[OMPBIND_GROUP]} {env.get(OMPBIND_GROUP_RANK, '?')})" if env.get(OMPBIND_GROUP) else ""
    rank = clean_line(f"rank {group.rank}{label}")
    title = f"{rank} of run {group.run_id}{attempt}: {cpus}, --bind {plan.bind}{places}"
    return f"{title}, {devices}" if devices else title


def _group_alike(processes: Sequence[ProcessState]) -> list[tuple[ProcessState, ...]]:
    """Group processes with the same name, command, libraries and threads."""
    groups: dict[object, list[ProcessState]] = {}
    for process in processes:
        rows = frozenset(
            (row[0].name, row[0].cpus, row[0].policy, len(row)) for row in _make_rows(process, each=False)
        )
        key = (process.name, process.command[:2], rows, find_libraries(process), process.unreadable)
        groups.setdefault(key, []).append(process)
    return [tuple(alike) for alike in groups.values()]


def _render_process(
    alike: tuple[ProcessState, ...],
    width: int,
    shown_env: Mapping[str, str],
    each: bool,
    shares: Mapping[int, float] | None,
) -> Iterator[str]:
    """Yield the lines of the first of some similar processes; variables only if not shown before."""
    process = alike[0]
    more = f" and {len(alike) - 1} similar" if len(alike) > 1 else ""
    yield wrap_indented(clean_lines(f"  pid {process.pid}{more}: {make_command(process)}"), width)
    table = _render_threads(process, width - 4, each, shares)
    yield from (f"    {line}" for line in table.split("\n"))
    for library in find_libraries(process):
        path = "/".join(library.path.split("/")[-3:])  # enough to distinguish copies in wheels
        yield f"    {library.kind.role}: {clip(clean_lines(path), 60)}"
    variables = {name: value for name, value in process.variables if each or name in _VARIABLES_SHOWN}
    if variables and any(shown_env.get(name) != value for name, value in variables.items()):
        quoted = ((name, v if v.split() == [v] else shlex.quote(v)) for name, v in variables.items())
        words = " ".join(f"{name}={value}" for name, value in quoted)
        yield wrap_indented(clean_lines(f"    environment: {words}"), width)


def _render_threads(process: ProcessState, width: int, each: bool, shares: Mapping[int, float] | None) -> str:
    rows = _make_rows(process, each=each)
    firsts = [row[0] for row in rows]
    numbers = [str(row[0].tid if each else len(row)) for row in rows]
    last = [CpuSet(thread.cpu for thread in row if thread.cpu is not None) for row in rows]
    if shares is None:
        title, used = "CPU time", [f"{sum(thread.busy_s or 0 for thread in row):.1f} s" for row in rows]
    else:
        title, used = "CPU", [f"{sum(shares.get(thread.tid, 0) for thread in row):.0%}" for row in rows]
    columns = [
        Column(title="thread" if each else "threads", cells=numbers, right=True),
        Column(title="name", cells=[clean_lines(thread.name) for thread in firsts]),
        Column(title="affinity mask", cells=[render_cpus(thread.cpus) for thread in firsts], grows=True),
        Column(title="last CPU", cells=[render_cpus(cpus) or "-" for cpus in last], grows=True),
        Column(title="scheduling", cells=[thread.policy or "-" for thread in firsts]),
        Column(title="state", cells=["".join(sorted({thread.state for thread in row})) for row in rows]),
        Column(title=title, cells=used, right=True),
    ]
    return render_table(columns, width)


def _make_rows(process: ProcessState, *, each: bool) -> list[list[ThreadState]]:
    """Return the threads of each row of a table: same name, mask and policy, or `each` thread alone."""
    groups: dict[object, list[ThreadState]] = {}
    for thread in process.threads:
        groups.setdefault(thread.tid if each else (thread.name, thread.cpus, thread.policy), []).append(
            thread
        )
    return list(groups.values())


def make_command(process: ProcessState) -> str:
    """Return the command of a process, or its title, on one line; the name of a kernel thread."""
    if not process.command:
        return f"[{process.name}], {'kernel thread' if process.is_kernel_thread else 'no command line'}"
    is_title = len(process.command) == 1
    words = process.command[0] if is_title else shlex.join(process.command)
    return clip(" ".join(words.split()), COMMAND_LIMIT)


def render_inspection_json(inspection: Inspection) -> str:
    """Render an inspection as JSON, schema ompbind-inspect/1."""
    record = {
        "schema": "ompbind-inspect/1",
        "level": inspection.severity.json_level,
        "crews": [_make_group_record(group) for group in inspection.groups],
        "together": [issue_record(issue) for issue in inspection.shared_issues],
    }
    return json.dumps(record, indent=2)


def _make_name(env: Mapping[str, str]) -> dict[str, object]:
    """Return the group of a rank in a run with groups, and its number there."""
    number = env.get(OMPBIND_GROUP_RANK, "")
    group_rank = int(number) if number.isdecimal() else None
    return {"group": env[OMPBIND_GROUP], "group_rank": group_rank} if env.get(OMPBIND_GROUP) else {}


def _make_group_record(group: RankProcesses) -> dict[str, object]:
    plan, verdict = group.expected, group.verdict
    memory = dict(group.memory)
    return {
        "run_id": group.run_id,
        "rank": group.rank,
        **_make_name(group.first.env),
        "attempt": None if group.rank is None else group.attempt,
        "planned": plan
        and {
            "cpus": str(plan.cpus),
            "service_cpus": str(plan.service_cpus),
            "places": list(map(str, plan.places)),
            "bind": str(plan.bind),
        },
        "verdict": {
            "level": verdict.severity.json_level,
            "text": verdict.text,
            "findings": [issue_record(issue) for issue in verdict.issues],
            **{name: getattr(verdict, name) for name in COUNTS},
        },
        "processes": [_make_process_record(process, memory.get(process.pid)) for process in group.processes],
    }


def _make_process_record(process: ProcessState, memory: MemoryMap | None) -> dict[str, object]:
    return {
        "pid": process.pid,
        "parent": process.parent,
        "name": process.name,
        "command": list(process.command),
        "kernel": process.is_kernel_thread,
        "libraries": [
            {"path": library.path, "kind": library.kind.name, "role": str(library.kind.role)}
            for library in find_libraries(process)
        ],
        "environment": dict(process.variables),
        "unread": list(process.unreadable),
        "memory": memory
        and {
            "policy": memory.policy,
            "nodes": [{"node": node, "bytes": size} for node, size in memory.anonymous_nodes],
        },
        "threads": [{**thread.as_dict(), "cpus": str(thread.cpus)} for thread in process.threads],
    }


MOST = 10
"""Rows of the table, and reasons, that are shown; the others are counted."""

_NOT_SAMPLED = (
    "exited before ompbind could check its threads; at the start it was bound to its CPUs",
    "exited before ompbind could check their threads; at the start they were bound to their CPUs",
)
"""The text for a rank that exited before the first sample, and for several."""

_HIDDEN = (
    "could not be sampled: its threads are not visible in /proc",
    "could not be sampled: their threads are not visible in /proc",
)
"""The text for a rank that was running but not visible in /proc, and for several."""


def render_verified(
    verified: VerificationResult, plan: Plan, *, quiet: bool = False, width: int = WIDTH
) -> str:
    """Render the result for all its ranks, in lines of `width` characters.

    With `quiet` it is "" unless there is an error.
    """
    bad = [rank for rank in verified.ranks if rank.severity is Severity.ERROR]
    if bad and verified.ended:
        return "" if quiet else render_paragraph("ompbind", _summarize_errors(verified, bad), width)
    if bad:
        ranks = named("rank", (rank.rank for rank in bad))
        head = render_paragraph("ompbind: warning", f"the threads of {ranks} do not run as planned", width)
        table = render_table(_make_columns(bad[:MOST], plan), width)
        return "\n".join((head, table, *_render_reasons(bad, width)))
    if quiet:
        return ""
    # The notes of a long run were reported when they were found.
    notes = [] if verified.ended and verified.complete else [*verified.ranks]
    for rank, issue in verified.unconfirmed:
        if issue.severity is not Severity.ERROR:
            notes.append(RankVerification(rank=rank, verdict=Verdict(issues=(issue,), summary="")))
    sentence = _make_sentence(verified, plan)
    return "\n".join((render_paragraph("ompbind", sentence, width), *_render_reasons(notes, width)))


def _make_sentence(verified: VerificationResult, plan: Plan) -> str:
    """Return the sentence for a result without errors; memory policies are in it if one is planned."""
    verdicts = [rank.verdict for rank in verified.ranks if rank.verdict]
    unseen = []
    for texts, hidden in ((_NOT_SAMPLED, False), (_HIDDEN, True)):
        ranks = [rank.rank for rank in verified.ranks if not rank.verdict and rank.hidden == hidden]
        if ranks:
            unseen.append(f"{named('rank', ranks)} {texts[len(ranks) > 1]}")
    not_sampled = "; ".join(unseen)
    if not verdicts:
        return f"not verified: {not_sampled}"
    policies = sorted({rank.memory for rank in verified.ranks if rank.memory})
    planned = any(placement.memory for placement in plan.placements)
    memory = f", memory policy {' and '.join(policies)}" if planned and policies else ""
    where = f"each on the CPUs of its rank{_count_bound(verdicts, plan)}{memory}"
    errors = [issue for _, issue in verified.unconfirmed if issue.severity is Severity.ERROR]
    if errors:
        codes: Counter[str] = Counter()
        for issue in errors:
            codes[issue.code] += issue.threads
        verbs = ("was", "were")
        found = (f"{count(n, 'thread')} {verbs[n > 1]} {code}" for code, n in codes.items())
        where = f"{', '.join(found)} in the last sample, not confirmed{memory}"
    when = ""
    if not verified.ended and (verified.stable or not verified.complete):
        when = f", {verified.seen_s:.0f} s after the start"
    elif not verified.ended:
        when = f", but their number or masks still change after {verified.seen_s:.0f} s"
    head = f"verified for {_render_duration(verified)}" if verified.ended else "verified"
    runtimes = ", ".join(sorted({name for verdict in verdicts for name in verdict.runtimes}))
    threads = count(sum(verdict.threads for verdict in verdicts), "thread")
    if verified.ended:
        threads = f"at most {count(verified.most_threads, 'thread')}"
    counts = f"{count(len(verdicts), 'rank')}, {threads}{f' ({runtimes})' if runtimes else ''}"
    more = filter(None, (not_sampled, _describe_processes(verified, plan), _describe_others(verified)))
    return "; ".join((f"{head}: {counts}, {where}{when}", *more))


def _describe_processes(verified: VerificationResult, plan: Plan) -> str:
    """Return which ranks had another number of busy processes than --processes-per-rank says, "" if none.

    Nothing is said of ranks that only waited.
    """
    ranks: dict[tuple[int, int], list[int]] = {}
    for rank in verified.ranks if verified.ended else ():
        expected = plan.rank_requests[rank.rank].processes_per_rank
        if rank.verdict and expected > 1 and rank.busy_processes not in (0, expected):
            ranks.setdefault((expected, rank.busy_processes), []).append(rank.rank)
    texts = []
    for expected in sorted({expected for expected, _ in ranks}):
        found = [
            f"{named('rank', some)} had at most {count(busy, 'busy process')}"
            for (number, busy), some in sorted(ranks.items())
            if number == expected
        ]
        texts.append(f"{', '.join(found)} at a time, {expected} were expected")
    return "; ".join(texts)


def _describe_others(verified: VerificationResult) -> str:
    """Return what other processes used of the CPUs of ranks during the whole run, "" if that is little."""
    disturbed = [rank for rank in verified.ranks if rank.others.is_much]
    if not (verified.ended and disturbed):
        return ""
    loads = {rank.others.cpus: rank.others for rank in disturbed}.values()  # some ranks share CPUs
    used = sum(load.used_s / load.span_s for load in loads)
    load = OthersLoad(cpus=union(load.cpus for load in loads), span_s=1.0, used_s=used)
    return f"{load.text} while {named('rank', (rank.rank for rank in disturbed))} ran"


def _count_bound(verdicts: Sequence[Verdict], plan: Plan) -> str:
    """Return how many threads are bound to places; a runtime without any may not have been used yet."""
    bound = sum(verdict.bound for verdict in verdicts)
    if bound:
        is_rank = all(part.request.bind is Bind.RANK for part in plan.parts)
        what = "the compute CPUs" if is_rank else "places"
        return f", {bound} of them bound to {what}"
    has_places = any(len(placement.places) > 1 for placement in plan.placements)
    has_runtime = any(verdict.runtimes for verdict in verdicts)
    return ", none of them bound to a place" if has_places and has_runtime else ""


def _render_duration(verified: VerificationResult) -> str:
    """Return for how long a run was sampled, and how often: "3.1 of 12.4 s, 5 samples"."""
    unit_s, unit = (1, "s") if verified.run_s < 120 else (60, "min") if verified.run_s < 7200 else (3600, "h")
    digits = 0 if unit == "min" else 1
    text = " of ".join(f"{seconds / unit_s:.{digits}f}" for seconds in (verified.seen_s, verified.run_s))
    return f"{text} {unit}, {count(verified.samples, 'sample')}"


def _summarize_errors(verified: VerificationResult, bad: Sequence[RankVerification]) -> str:
    """Return the sentence at the end of a run with errors, which were reported when they were found."""
    errors = [
        (rank.rank, issue)
        for rank in bad
        for issue in (rank.verdict.issues if rank.verdict else ())
        if issue.severity is Severity.ERROR
    ]
    texts = []
    if last := [(rank, issue) for rank, issue in errors if not issue.is_over]:
        ranks, codes = _name_errors(last)
        texts.append(f"{ranks} had errors ({codes}) in the last sample")
    if past := [(rank, issue) for rank, issue in errors if issue.is_over]:
        ranks, codes = _name_errors(past)
        texts.append(f"the threads of {ranks} did not always run as planned ({codes})")
    return f"not verified in {_render_duration(verified)}: {'; '.join(texts)}"


def _name_errors(errors: Sequence[tuple[int, ThreadIssue]]) -> tuple[str, str]:
    """Return the names of the ranks with some errors, and the codes of these errors."""
    ranks = named("rank", {rank for rank, _ in errors})
    return ranks, ", ".join(dict.fromkeys(issue.code for _, issue in errors))


def _make_columns(ranks: Sequence[RankVerification], plan: Plan) -> list[Column]:
    cpus = {placement.rank: render_cpus(placement.cpuset) for placement in plan.placements}
    numbers = [rank.rank for rank in ranks if rank.verdict]
    verdicts = [rank.verdict for rank in ranks if rank.verdict]
    groups = [Column(title="group", cells=[plan.labels[rank] for rank in numbers])] if plan.groups else []
    return [
        Column(title="rank", cells=list(map(str, numbers)), right=True),
        *groups,
        Column(title="CPUs", cells=[cpus.get(rank, "") for rank in numbers], grows=True),
        *(
            Column(title=title, cells=[str(getattr(verdict, title)) for verdict in verdicts], right=True)
            for title in ("threads", "outside", "narrowed", "stacked")
        ),
        Column(
            title="runtimes", cells=[", ".join(verdict.runtimes) or "-" for verdict in verdicts], grows=True
        ),
    ]


def _render_reasons(ranks: Sequence[RankVerification], width: int) -> Iterator[str]:
    """Yield each text of an issue once, with its severity if it is no error, and all ranks that have it."""
    ranks_by_text: dict[tuple[str, str], list[int]] = {}
    for rank in ranks:
        for issue in rank.verdict.issues if rank.verdict else ():
            label = "" if issue.severity is Severity.ERROR else f"{issue.severity}: "
            ranks_by_text.setdefault((label, issue.text), []).append(rank.rank)
    for (label, text), numbers in list(ranks_by_text.items())[:MOST]:
        yield render_paragraph("ompbind", f"{label}{named('rank', numbers)}: {text}", width)
    if len(ranks_by_text) > MOST:
        others = list(ranks_by_text.values())[MOST:]
        rest = named("rank", {number for numbers in others for number in numbers})
        yield render_paragraph("ompbind", f"{rest}: {count(len(others), 'other reason')}", width)


def verified_record(verified: VerificationResult | None) -> dict[str, object] | None:
    """Return the JSON value of a result in the report of a run, None without --verify."""
    if verified is None:
        return None
    return {
        "level": verified.severity.json_level,
        "settled": verified.complete,
        "calm": verified.stable,
        "seen_s": round(verified.seen_s, 3),
        "samples": verified.samples,
        "threads": verified.most_threads,
        "strict": verified.strict,
        "unconfirmed": [{"rank": rank, **issue_record(issue)} for rank, issue in verified.unconfirmed],
        "ranks": [_make_rank_record(rank) for rank in verified.ranks],
    }


def _make_rank_record(rank: RankVerification) -> dict[str, object]:
    verdict = rank.verdict
    return {
        "rank": rank.rank,
        "seen_s": None if rank.seen_s is None else round(rank.seen_s, 3),
        "level": None if verdict is None else verdict.severity.json_level,
        **{name: None if verdict is None else getattr(verdict, name) for name in ("processes", *COUNTS)},
        "runtimes": list(verdict.runtimes) if verdict else [],
        "memory": rank.memory,
        "others_share": round(rank.others.share, 3) if rank.others.span_s else None,
        "findings": [issue_record(issue) for issue in verdict.issues] if verdict else [],
        "text": verdict.text if verdict else (_HIDDEN if rank.hidden else _NOT_SAMPLED)[0],
    }


def issue_record(issue: ThreadIssue) -> dict[str, object]:
    """Return the JSON value of an issue."""
    return {
        "code": issue.code,
        "level": issue.severity.json_level,
        "threads": issue.threads,
        "text": issue.text,
    }
