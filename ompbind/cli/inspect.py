"""`ompbind inspect`: the affinity masks and last CPUs of the threads of running processes."""

import json
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from textwrap import indent

import click

from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.option import Option, VerbContext
from ompbind.cli.ps import NONE_LIVE
from ompbind.cli.verb import Verb, make_format_option
from ompbind.commands.rank_variables import OMPBIND_GROUP, OMPBIND_GROUP_RANK, OMPBIND_RANK_DEVICES
from ompbind.cpuset import CpuSet, count
from ompbind.errors import InspectError
from ompbind.execution.signals import find_unignored
from ompbind.inspection import targets
from ompbind.inspection.diagnosis import OVERWRITTEN, find_libraries
from ompbind.inspection.load import CONFIRM_STEPS_S
from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.shared_load import Streaks, add_load, is_suspicious
from ompbind.inspection.targets import Target, find_all_runs, find_target, read_visible_runs
from ompbind.inspection.verdict import State
from ompbind.openmp.variables import OVERRIDING_VARIABLES
from ompbind.procfs.parsers import MemoryMap
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.report.text import (
    PIPE,
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
from ompbind.report.verification import COUNTS, issue_record
from ompbind.text import Severity, clean_line, clean_lines, mask_words, whole_number

EXAMPLES = (
    ("Every live run", "ompbind inspect --all"),
    ("The run whose name begins with nightly-, each thread on a line", "ompbind inspect nightly- -v"),
    ("Any process, with its descendants", "ompbind inspect 4711"),
    ("Only what is wrong in these processes", "ompbind inspect 4711 --problems"),
    ("All runs, again every 2 seconds", "ompbind inspect --all --watch"),
    ("All runs as JSON", "ompbind inspect --all --format json"),
)

_INTERVAL_S = 2  # between two inspections of --watch, unless the user chooses it
_FIRST_S = 0.3  # between the first two inspections of --watch, whose difference is shown first
_MOST_SHARE = 0.007  # CPU time of --watch at most, divided by wall time, unless the user chooses the interval

OPTIONS = (
    Option("--all", verbs=("inspect",), flag=True, help="All live runs on this machine"),
    Option("-v", "--verbose", verbs=("inspect",), flag=True,
           help="A line for each thread, and all thread pool variables"),
    Option("--problems", verbs=("inspect",), flag=True,
           help="Only the summary, and ranks and processes with issues"),
    make_format_option("inspect", "table", "json"),
    Option("--watch", verbs=("inspect",), bare="", metavar="[SECONDS]",
           help=f"Repeat every SECONDS, with the CPU use since the last time (default {_INTERVAL_S})"),
)  # fmt: skip


def inspect(ctx: VerbContext) -> int:
    """Show the affinity mask and last CPU of each thread of running processes, and the issues found.

    A process is shown with all its descendants, a run with all its ranks. Ranks are compared with their
    plan; for other processes, ompbind checks whether threads compete for CPUs. Nothing is stopped or changed.
    The exit code is 1 if there is an error, or if a process or run could not be read.
    """
    values, watch = ctx.params, ctx.params["watch"]
    interval_s, what = _read_interval(watch or "", values["words"])
    if values["all"] == bool(what):
        text = "--all excludes names of processes and runs" if what else "no process or run is given"
        raise InspectError(text, hint="use 'ompbind inspect 4711', or 'ompbind inspect --all'")
    target = None if values["all"] else find_target(what)
    is_json, problems = values["format"] == "json", values["problems"]
    if watch is not None:
        if is_json:
            hint = "run 'ompbind inspect --format json' repeatedly instead"
            raise InspectError("--watch cannot print JSON", hint=hint)
        return _watch(target, interval_s, each=values["verbose"], problems=problems)
    target = target or find_all_runs()
    streaks, inspection = add_load({}, targets.inspect(target, memory=False))
    for seconds in CONFIRM_STEPS_S:  # inspected again to see the load, the last time only if it is suspicious
        if seconds == CONFIRM_STEPS_S[-1]:
            if not is_suspicious(streaks):
                break
            reason = "whether more threads are runnable than there are CPUs"
            print_message(f"checking for {seconds:.0f} s {reason}")
        time.sleep(seconds)
        streaks, inspection = add_load(streaks, targets.inspect(target))
    if is_json:
        write_stdout(render_inspection_json(inspection, problems=problems))
    elif not (target.pids or target.runs or target.unseen):
        write_stdout(NONE_LIVE)
    else:
        text = render_inspection(inspection, each=values["verbose"], problems=problems, screen=read_screen())
        write_stdout(text)
    return 1 if target != Target() and inspection.state is not State.OK else 0


def _read_interval(text: str, what: tuple[str, ...]) -> tuple[float | None, tuple[str, ...]]:
    """Return the seconds of --watch, None for the default, and what to inspect.

    A word after --watch may be the name of a run.
    """
    if not text:
        return None, what
    try:
        seconds = float(text)
    except ValueError:
        return None, (text, *what)
    if 0.1 <= seconds <= 3600:
        return seconds, what
    hint = "write a process before --watch, as in 'ompbind inspect 4711 --watch'"
    raise InspectError(f"--watch {text}: the interval must be 0.1 to 3600 seconds", hint=hint)


def _watch(target: Target | None, interval_s: float | None, *, each: bool, problems: bool) -> int:
    """Show inspections until all processes have exited or the user presses Ctrl-C; None is all live runs.

    On a terminal each replaces the previous one, elsewhere they follow each other. Returns the exit code: 1
    if the last inspection with processes has an error, or if something was not seen.
    """
    for number in find_unignored((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)):
        signal.signal(number, signal.default_int_handler)
    state = State.NOT_SEEN
    with suppress(KeyboardInterrupt):
        for inspection, shares, pause_s in _take_inspections(target, interval_s):
            if inspection.groups:
                state, screen = inspection.state, read_screen()
                shown = render_inspection(
                    inspection, each=each, problems=problems, screen=screen, shares=shares
                )
                lines = [f"{time.strftime('%H:%M:%S')}  every {pause_s:.3g} s", *shown.split("\n"), ""]
                if sys.stdout.isatty():
                    more = f"... {len(lines) - screen.height + 1} more lines; --problems shows fewer"
                    lines = lines if len(lines) <= screen.height else [*lines[: screen.height - 2], more]
                    click.clear()
                write_stdout("\n".join(lines))
        print_message("no processes left to watch")
    return 0 if state is State.OK else 1


def _take_inspections(
    target: Target | None, interval_s: float | None
) -> Iterator[tuple[Inspection, dict[int, float], float]]:
    """Yield inspections, the share of a CPU that each thread used, by TID, and the seconds until the next.

    Ends when all processes have exited and the runs are no longer live. Without an interval, inspections are
    so rare that they take less than 1 % of a CPU.
    """
    streaks: Streaks = {}
    seen, busy_s, at_s, pause_s = False, dict[int, float](), 0.0, min(_FIRST_S, interval_s or _FIRST_S)
    while True:
        spent_s, before_s, busy_before_s = time.thread_time(), at_s, busy_s
        runs = target or find_all_runs()
        streaks, inspection = add_load(streaks, targets.inspect(runs, memory=False))
        names = {run.run_id for run in runs.runs}
        is_live = inspection.groups or any(run.run_id in names for run in read_visible_runs())
        if not is_live and (target or seen):
            return
        seen, at_s = seen or bool(inspection.groups), time.monotonic()
        threads = [thread for group in inspection.groups for p in group.processes for thread in p.threads]
        busy_s = {thread.tid: thread.busy_s for thread in threads}
        if before_s:
            span_s = at_s - before_s
            shares = {tid: max(0.0, s - busy_before_s.get(tid, 0.0)) / span_s for tid, s in busy_s.items()}
            pause_s = interval_s or max(float(_INTERVAL_S), (time.thread_time() - spent_s) / _MOST_SHARE)
            yield inspection, shares, pause_s
        time.sleep(pause_s)


NO_PROCESSES = "no processes left to inspect"
_COMMAND_LIMIT = 64  # characters of a command in text

_VARIABLES_SHOWN = {"OMP_NUM_THREADS", "LD_PRELOAD", "MKL_THREADING_LAYER", "OMP_WAIT_POLICY"}
_VARIABLES_SHOWN |= {"GOMP_SPINCOUNT", *OVERRIDING_VARIABLES}
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
    width, shared = screen.text_width, inspection.shared_issues
    lines = (render_paragraph(State.NOT_SEEN, f"{who}: {reason}", width) for who, reason in inspection.unseen)
    unseen = "\n".join(lines)
    if not inspection.groups:
        return unseen or NO_PROCESSES
    blocks = [unseen] if unseen else []
    if problems or len(inspection.groups) > 1:
        blocks.append(wrap_indented(_render_summary(inspection), width))
    if shared:
        blocks.append("\n".join(render_paragraph(str(it.severity), it.text, width) for it in shared))
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
    yield wrap_indented(clean_lines(_make_title(group)), width)
    issues = [f"  {issue.severity}: {issue.text}" for issue in group.verdict.issues]
    for line in issues or [f"  ok: {group.verdict.text}"]:
        yield wrap_indented(clean_lines(line), width)
    memory, shown_env = dict(group.memory), dict[str, str]()
    alike: dict[object, list[ProcessState]] = {}
    for process in group.processes:
        threads = Counter((thread.name, thread.cpus, thread.policy) for thread in process.threads)
        found = (find_libraries(process), process.unreadable)
        key = (process.name, process.command[:2], frozenset(threads.items()), *found)
        alike.setdefault(process.pid if each else key, []).append(process)
    for first, *others in alike.values():
        more = f" and {len(others)} similar" if others else ""
        yield wrap_indented(clean_lines(f"  pid {first.pid}{more}: {_make_command(first)}"), width)
        yield indent(_render_threads(first, width - 4, each, shares), "    ")
        for library in find_libraries(first):
            path = "/".join(library.path.split("/")[-3:])  # enough to distinguish copies in wheels
            yield f"    {library.kind.role}: {clip(clean_lines(path), 60)}"
        variables = {name: value for name, value in first.variables if each or name in _VARIABLES_SHOWN}
        if any(shown_env.get(name) != value for name, value in variables.items()):
            quoted = ((name, v if v.split() == [v] else shlex.quote(v)) for name, v in variables.items())
            words = " ".join(f"{name}={value}" for name, value in quoted)
            yield wrap_indented(clean_lines(f"    environment: {words}"), width)
        if memory_map := memory.get(first.pid):
            parts = [f"{render_bytes(size)} on node {node}" for node, size in memory_map.nodes]
            parts += [f"policy {memory_map.policy}"] if memory_map.policy else []
            yield from [wrap_indented(f"    memory: {', '.join(parts)}", width)] if parts else []
        if first.unreadable:
            why = OVERWRITTEN if first.is_environment_overwritten else " by you"
            yield f"    {' and '.join(first.unreadable)}: not readable{why}"
        shown_env = shown_env or dict(first.env)


def _make_title(group: RankProcesses) -> str:
    """Return the title of a group: "rank 0 of run NAME: CPUs 0-3, bind rank", "process 12"."""
    plan, env = group.expected, group.first.env
    if group.rank is None or plan is None:
        return f"process {group.first.pid}" + (f" of run {group.run_id}" if group.run_id else "")
    number = min(len(plan.places), len(plan.cpus))  # if places are unknown, all possible ones are listed
    places = f", {count(number, 'place')}" if number > 1 else ""
    attempt = f", attempt {group.attempt}" if group.attempt > 1 else ""
    cpus = render_all_cpus(plan.compute, plan.service_cpus)
    devices = "".join(f", {device}" for device in env.get(OMPBIND_RANK_DEVICES, "").split(",") if device)
    label = f" ({env[OMPBIND_GROUP]} {env.get(OMPBIND_GROUP_RANK, '?')})" if env.get(OMPBIND_GROUP) else ""
    rank = clean_line(f"rank {group.rank}{label}")
    held = f", held on its CPUs ({plan.hold.option})" if plan.hold else ""
    return f"{rank} of run {group.run_id}{attempt}: {cpus}, --bind {plan.bind}{places}{devices}{held}"


def _render_threads(process: ProcessState, width: int, each: bool, shares: Mapping[int, float] | None) -> str:
    """Render a table of threads; threads of the same name, mask and policy share a row, unless `each`."""
    groups: dict[object, list[ThreadState]] = {}
    for thread in process.threads:
        key = thread.tid if each else (thread.name, thread.cpus, thread.policy)
        groups.setdefault(key, []).append(thread)
    rows, firsts = list(groups.values()), [row[0] for row in groups.values()]
    title, numbers = ("thread", [t.tid for t in firsts]) if each else ("threads", [*map(len, rows)])
    last = [CpuSet(thread.cpu for thread in row) for row in rows]
    if shares is None:
        use, used = "CPU time", [f"{sum(thread.busy_s for thread in row):.1f} s" for row in rows]
    else:
        use, used = "CPU", [f"{sum(shares.get(thread.tid, 0) for thread in row):.0%}" for row in rows]
    columns = [
        Column(title=title, cells=[*map(str, numbers)], right=True),
        Column(title="name", cells=[clean_lines(thread.name) for thread in firsts]),
        Column(title="affinity mask", cells=[render_cpus(thread.cpus) for thread in firsts], grows=True),
        Column(title="last CPU", cells=[render_cpus(cpus) or "-" for cpus in last], grows=True),
        Column(title="scheduling", cells=[thread.policy for thread in firsts]),
        Column(title="state", cells=["".join(sorted({thread.state for thread in row})) for row in rows]),
        Column(title=use, cells=used, right=True),
    ]
    return render_table(columns, width)


def _make_command(process: ProcessState) -> str:
    """Return the command of a process, or its title, on one line; the name of a kernel thread."""
    if not process.command:
        return f"[{process.name}], {'kernel thread' if process.is_kernel_thread else 'no command line'}"
    words = process.command[0] if len(process.command) == 1 else shlex.join(mask_words(process.command))
    return clip(" ".join(words.split()), _COMMAND_LIMIT)


def render_inspection_json(inspection: Inspection, *, problems: bool = False) -> str:
    """Render an inspection as JSON, schema ompbind-inspect/1; with `problems` only groups with issues."""
    shown = select_problems(inspection) if problems else inspection
    record = {
        "schema": "ompbind-inspect/1",
        "state": inspection.state,
        "unseen": [{"target": who, "reason": reason} for who, reason in inspection.unseen],
        "level": inspection.severity.json_level,
        "crews": [_make_group_record(group) for group in shown.groups],
        "together": [issue_record(issue) for issue in inspection.shared_issues],
    }
    return json.dumps(record, indent=2)


def _make_group_record(group: RankProcesses) -> dict[str, object]:
    plan, verdict, env = group.expected, group.verdict, group.first.env
    memory, group_rank = dict(group.memory), whole_number(env.get(OMPBIND_GROUP_RANK))
    return {
        "run_id": group.run_id,
        "rank": group.rank,
        **({"group": env[OMPBIND_GROUP], "group_rank": group_rank} if env.get(OMPBIND_GROUP) else {}),
        "attempt": None if group.rank is None else group.attempt,
        "planned": plan
        and {
            "cpus": str(plan.cpus),
            "service_cpus": str(plan.service_cpus),
            "places": list(map(str, plan.places)),
            "bind": str(plan.bind),
            "hold": plan.hold,
        },
        "verdict": {
            "state": State.ERROR if verdict.severity is Severity.ERROR else State.OK,
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
        "command": list(mask_words(process.command)),
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
            "nodes": [{"node": node, "bytes": size} for node, size in memory.nodes],
        },
        "threads": [{**thread.as_dict(), "cpus": str(thread.cpus)} for thread in process.threads],
    }


VERB = Verb(
    "inspect",
    inspect,
    summary="Show each running thread's affinity mask and last CPU.",
    page="verify",
    examples=EXAMPLES,
    words="targets",
    complete_word=lambda _: sorted({run.run_id for run in read_visible_runs()}),
)
