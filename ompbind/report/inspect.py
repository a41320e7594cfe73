"""What was seen of running processes, for people (tables) and for programs (schema ompbind-inspect/1)."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from ompbind.cpuset import CpuSet, count, named
from ompbind.inspection.processes import find_libraries
from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.openmp.variables import DEFEATING
from ompbind.procfs.numa_maps import MemorySight
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.report.text import (
    Column,
    clip,
    render_bytes,
    render_cpus,
    render_paragraph,
    render_table,
    wrap_indented,
)
from ompbind.report.verification import COUNTS, issue_record
from ompbind.severity import Severity
from ompbind.text import plain

NOBODY = "no process is left to look at"
COMMAND_LIMIT = 64  # characters of a command line that people are shown

_SHOWN = {*DEFEATING, "OMP_NUM_THREADS", "LD_PRELOAD", "MKL_THREADING_LAYER", "OMP_WAIT_POLICY"}
"""Variables that people are always shown; most others only repeat the number of threads."""


def render_inspection(inspection: Inspection, *, each: bool = False) -> str:
    """Render all crews, each with its verdict and a table of its threads; `each` does not group them."""
    if not inspection.crews:
        return NOBODY
    blocks = ["\n".join(_render_crew(crew, each=each)) for crew in inspection.crews]
    if inspection.together:
        blocks.append("\n".join(render_paragraph(str(one.severity), one.text) for one in inspection.together))
    if len(inspection.crews) > 1:
        blocks.append(_sum_up(inspection))
    return "\n\n".join(blocks)


def _sum_up(inspection: Inspection) -> str:
    crews = inspection.crews
    ranks = sum(one.rank is not None for one in crews)
    others = sum(len(one.processes) for one in crews if one.rank is None)
    who = [count(ranks, "rank")] if ranks else []
    who += [f"{others} {'process' if others == 1 else 'processes'}"] if others else []
    threads = count(sum(one.verdict.threads for one in crews), "thread")
    bad = [one.verdict.severity for one in crews] + [one.severity for one in inspection.together]
    problems = bad.count(Severity.ERROR)
    return f"{' and '.join(who)} with {threads}: {count(problems, 'error') if problems else 'no error'}"


def _render_crew(crew: RankProcesses, *, each: bool) -> Iterator[str]:
    yield wrap_indented(plain(make_title(crew)))
    if crew.verdict.issues:
        yield from (wrap_indented(plain(f"  {one.severity}: {one.text}")) for one in crew.verdict.issues)
    else:
        yield wrap_indented(plain(f"  ok: {crew.verdict.text}"))
    memory = dict(crew.memory)
    told: Mapping[str, str] = {}
    for group in [(one,) for one in crew.processes] if each else _alike(crew.processes):
        yield from _render_process(group, memory.get(group[0].pid), told, each=each)
        told = told or group[0].env


def make_title(crew: RankProcesses) -> str:
    """Say what a crew is: "rank 0 of run NAME: CPUs 0-3, bind rank", "process 12"."""
    if crew.rank is None or crew.expected is None:
        run = f" of run {crew.run_id}" if crew.run_id else ""
        return f"process {crew.first.pid}{run}"
    plan = crew.expected
    number = min(len(plan.places), len(plan.cpus))  # where they are not told, all that may be stand there
    places = f", {count(number, 'place')}" if number > 1 else ""
    return f"rank {crew.rank} of run {crew.run_id}: {named('CPU', plan.cpus)}, bind {plan.bind}{places}"


def _alike(processes: Sequence[ProcessState]) -> list[tuple[ProcessState, ...]]:
    groups: dict[object, list[ProcessState]] = {}
    for one in processes:
        rows = frozenset(
            (row[0].name, row[0].cpus, row[0].policy, len(row)) for row in _rows(one, each=False)
        )
        groups.setdefault((one.name, one.command[:2], rows, find_libraries(one), one.unread), []).append(one)
    return [tuple(group) for group in groups.values()]


def _render_process(
    group: tuple[ProcessState, ...], memory: MemorySight | None, told: Mapping[str, str], *, each: bool
) -> Iterator[str]:
    process = group[0]
    more = f" and {len(group) - 1} more like it" if len(group) > 1 else ""
    yield wrap_indented(plain(f"  pid {process.pid}{more}: {make_command(process)}"))
    yield from (f"    {line}" for line in _render_threads(process, each=each).split("\n"))
    for one in find_libraries(process):
        path = "/".join(one.path.split("/")[-3:])  # the end of it tells copies in wheels apart
        yield f"    {one.kind.role}: {clip(plain(path), 60)}"
    variables = {name: value for name, value in process.variables if each or name in _SHOWN}
    if variables and any(told.get(name) != value for name, value in variables.items()):
        words = " ".join(f"{name}={_quote(value)}" for name, value in variables.items())
        yield wrap_indented(plain(f"    environment: {words}"))
    if memory is not None and (memory.own_nodes or memory.policy):
        yield wrap_indented(f"    memory: {_memory(memory)}")
    if process.unread:
        yield f"    {' and '.join(process.unread)}: may not be read by you"


def _render_threads(process: ProcessState, *, each: bool) -> str:
    rows = _rows(process, each=each)
    firsts = [row[0] for row in rows]
    numbers = [str(row[0].tid if each else len(row)) for row in rows]
    last = [CpuSet(one.cpu for one in row if one.cpu is not None) for row in rows]
    busy_s = [sum(one.busy_s or 0 for one in row) for row in rows]
    columns = [
        Column(title="thread" if each else "threads", cells=numbers, right=True),
        Column(title="name", cells=[plain(one.name) for one in firsts]),
        Column(title="may run on", cells=[render_cpus(one.cpus) for one in firsts], grows=True),
        Column(title="ran on", cells=[render_cpus(cpus) or "-" for cpus in last], grows=True),
        Column(title="policy", cells=[one.policy or "-" for one in firsts]),
        Column(title="state", cells=["".join(sorted({one.state for one in row})) for row in rows]),
        Column(title="CPU time", cells=[f"{seconds:.1f} s" for seconds in busy_s], right=True),
    ]
    return render_table(columns)


def _rows(process: ProcessState, *, each: bool) -> list[list[ThreadState]]:
    """Return the threads of a process, those that look alike together unless each is asked for."""
    groups: dict[object, list[ThreadState]] = {}
    for one in process.threads:
        groups.setdefault(one.tid if each else (one.name, one.cpus, one.policy), []).append(one)
    return list(groups.values())


def make_command(process: ProcessState) -> str:
    """Write the command line of a process on one line; its name for threads of the kernel."""
    if not process.command:
        return f"[{process.name}], no command line" + (" (of the kernel)" if process.kernel else "")
    return clip(" ".join(shlex.join(process.command).split()), COMMAND_LIMIT)


def _quote(value: str) -> str:
    """Quote a value where it would not be seen where it ends."""
    return shlex.quote(value) if not value or value.split() != [value] else value


def _memory(memory: MemorySight) -> str:
    nodes = ", ".join(f"{render_bytes(size)} on node {node}" for node, size in memory.own_nodes)
    policy = f"policy {memory.policy}" if memory.policy else ""
    return ", ".join(filter(None, (nodes, policy)))


def render_inspection_json(inspection: Inspection) -> str:
    """Render an inspection as JSON, schema ompbind-inspect/1."""
    record = {
        "schema": "ompbind-inspect/1",
        "level": inspection.severity.json_level,
        "crews": [_crew_record(one) for one in inspection.crews],
        "together": [issue_record(one) for one in inspection.together],
    }
    return json.dumps(record, indent=2)


def _crew_record(crew: RankProcesses) -> dict[str, object]:
    plan, verdict = crew.expected, crew.verdict
    memory = dict(crew.memory)
    return {
        "run_id": crew.run_id,
        "rank": crew.rank,
        "planned": plan
        and {"cpus": str(plan.cpus), "places": list(map(str, plan.places)), "bind": str(plan.bind)},
        "verdict": {
            "level": verdict.severity.json_level,
            "text": verdict.text,
            "findings": [issue_record(one) for one in verdict.issues],
            **{name: getattr(verdict, name) for name in COUNTS},
        },
        "processes": [_process_record(one, memory.get(one.pid)) for one in crew.processes],
    }


def _process_record(process: ProcessState, memory: MemorySight | None) -> dict[str, object]:
    return {
        "pid": process.pid,
        "parent": process.parent,
        "name": process.name,
        "command": list(process.command),
        "kernel": process.kernel,
        "libraries": [
            {"path": one.path, "kind": one.kind.name, "role": str(one.kind.role)}
            for one in find_libraries(process)
        ],
        "environment": dict(process.variables),
        "unread": list(process.unread),
        "memory": memory
        and {
            "policy": memory.policy,
            "nodes": [{"node": node, "bytes": size} for node, size in memory.own_nodes],
        },
        "threads": [{**one.as_dict(), "cpus": str(one.cpus)} for one in process.threads],
    }
