"""`ompbind rebind`: give the threads of running processes the CPUs of a plan."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ompbind.cli import CPUS, OUTPUT
from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.inspect import NO_PROCESSES
from ompbind.cli.option import Option, ValueLevel, VerbContext
from ompbind.cli.readers import at_least
from ompbind.cli.rebind_processes import (
    MaskCounts,
    ReboundProcess,
    WantedCpus,
    check_roots,
    find_workers,
    rebind_processes,
)
from ompbind.cli.register import keep_working_masks, plan_or_suggest, print_warnings, read_other_runs
from ompbind.cli.settings import choose_sharing, make_settings
from ompbind.cli.verb import Verb, make_format_option
from ompbind.cpuset import count, named, union
from ompbind.errors import InspectError, OptionError, RequestError
from ompbind.inspection.diagnosis import explain_later_binding
from ompbind.inspection.rank_processes import Inspection, RankProcesses
from ompbind.inspection.targets import find_target, has_several_nodes, inspect, read_visible_runs
from ompbind.machine.read import read_machine
from ompbind.machine.read.linux_cgroup import read_limits
from ompbind.machine.read.root import DirectoryRoot
from ompbind.planning.request import Request
from ompbind.procfs.parsers import find_descendants, find_owners
from ompbind.procfs.reader import read_processes
from ompbind.report.text import PIPE, Column, Screen, render_cpus, render_paragraph, render_table
from ompbind.text import clean_line

EXAMPLES = (
    ("Give a process and its workers a CPU of each core", "ompbind rebind 4711"),
    ("Only show what would change", "ompbind rebind 4711 --dry-run"),
    ("Divide the CPUs between two servers", "ompbind rebind 4711 4712"),
    ("Give each of the four busiest workers of a process its own CPUs", "ompbind rebind -n 4 4711"),
    ("Name the CPUs", "ompbind rebind 4711 4712 -m '0-7|8-15'"),
    ("Give the ranks of a run the CPUs of their plan again", "ompbind rebind nightly-3"),
)

OPTIONS = (
    Option("-n", "--ranks", section=CPUS, verbs=("rebind",), read=at_least(1), number=True, metavar="N",
           everyday=True, help="Make the N busiest children of the process the ranks",
           default_help="each process is a rank"),
    Option("--dry-run", section=OUTPUT, verbs=("rebind",), flag=True, everyday=True,
           help="Show what would change, and change nothing"),
    make_format_option("rebind", "table", "json", section=OUTPUT),
)  # fmt: skip


def rebind(ctx: VerbContext) -> int:
    """Give all threads of running processes the CPUs of a plan, and show their CPUs before and after.

    Each process with its descendants is one rank. The ranks of a run get what their plan says. The number of
    threads does not change, and memory that is in use stays on its NUMA node. Variables of running programs
    do not change either: an OpenMP runtime may bind new threads again, which is reported. The exit code is 1
    if a thread could not be bound.
    """
    dry_run: bool = ctx.params["dry_run"]
    target = find_target(ctx.params["words"])
    for who, reason in target.unseen:
        raise InspectError(f"{who}: {reason}")
    if bool(target.pids) == bool(target.runs):
        text = "processes and runs cannot be combined" if target.pids else "no process or run is given"
        hint = "use 'ompbind rebind 4711', or the name of a run: 'ompbind rebind nightly'"
        raise OptionError(text, hint=hint)
    inspection = inspect(target, memory=False)
    if target.runs:
        for name in ctx.sources.options:
            if ctx.sources.level(name) is ValueLevel.COMMAND_LINE and name not in ("dry_run", "format"):
                given = ctx.sources.render(name)
                text = f"{given} has no effect with a run: its ranks get the CPUs of their plan"
                raise OptionError(text, hint="omit the option, or name processes")
        roots: dict[int, WantedCpus] = {}
        for group in inspection.groups:
            if plan := group.expected:
                wanted = WantedCpus(rank=group.rank, cpus=plan.cpus, masks=plan.masks)
                roots |= {process.pid: wanted for process in group.processes}
    else:
        check_roots(target.pids)
        roots = _plan(ctx.params, target.pids, inspection.groups)
    found = rebind_processes(roots, dry_run=dry_run)
    if not found:
        write_stdout(NO_PROCESSES)
        return 1
    notes = tuple(dict.fromkeys(_find_notes(inspection, found)))
    if ctx.params["format"] == "json":
        write_stdout(render_rebound_json(found, notes, dry_run=dry_run))
    else:
        write_stdout(render_rebound(found, notes, dry_run=dry_run, screen=read_screen()))
    return 0 if all(process.is_bound for process in found) else 1


def _plan(
    values: Mapping[str, Any], pids: Sequence[int], groups: Sequence[RankProcesses]
) -> dict[int, WantedCpus]:
    """Plan for processes as ranks; other children of a process whose workers are ranks get all their CPUs."""
    pids = tuple(dict.fromkeys(pids))
    ranks: int = values["ranks"] or len(pids)
    if len(pids) > 1 and ranks != len(pids):
        hint = "omit -n: each process is a rank; or name the parent of the workers alone"
        raise OptionError(f"-n {ranks}, but {len(pids)} processes are named", hint=hint)
    workers = find_workers(pids[0], ranks) if ranks > len(pids) else pids
    request = make_settings(Request, values, ranks=ranks, sharing=choose_sharing(values))
    machine, stats = read_machine(), read_processes()
    runs = read_other_runs(machine, request)
    others = [run for run in runs if find_descendants(stats, (run.pid,)).isdisjoint(pids)]
    plan = plan_or_suggest(machine, request, others)
    print_warnings(plan)
    if (cores := values["cores"]) and not values["mask"] and [*plan.used] != [cores]:
        print_message(f"note: -c {cores} is a number of cores; -m {cores} is CPU {cores}")
    masks = [placement.cpuset for placement in plan.placements]
    roots: dict[int, WantedCpus] = {}
    for pid, rank, cpus in [(pids[0], None, union(masks)), *zip(workers, range(ranks), masks, strict=True)]:
        allowed = read_limits(DirectoryRoot("/"), str(pid)).cpuset
        if allowed and not cpus <= allowed:
            text = f"the cpuset of process {pid} has {named('CPU', allowed)}, the plan {named('CPU', cpus)}"
            error = RequestError(text, hint=f"name CPUs of the cpuset; for example --mask {allowed}")
            keep_working_masks(error, machine, request, others)
            raise error
        roots[pid] = WantedCpus(rank=rank, cpus=cpus, masks=frozenset((cpus,)))
    owners = find_owners(stats, roots)
    for group in groups:
        held = group.expected
        if held and held.hold and not owners.get(group.first.pid, held).cpus <= held.cpus:
            text = f"rank {group.rank} of run {group.run_id} is held on {named('CPU', held.cpus)}"
            hint = f"start the run without {held.hold.option}, or name CPUs of the rank"
            raise RequestError(f"{text}: its program cannot bind threads to other CPUs", hint=hint)
    return roots


def _find_notes(inspection: Inspection, found: Sequence[ReboundProcess]) -> Iterator[str]:
    wanted: Mapping[int, WantedCpus] = {process.pid: process.wanted for process in found}
    texts: dict[str, list[str]] = {}
    for group in inspection.groups:
        for process in group.processes:
            if process.pid == os.getpid():
                continue
            if process.pid not in wanted:
                yield f"{process.name} ({process.pid}) is not changed: its rank is not known"
            elif why := explain_later_binding(process, wanted[process.pid].masks):
                texts.setdefault(why, []).append(f"{process.name} ({process.pid})")
    for why, names in texts.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{names[0]}{others}: {why}; a start with 'ompbind run' prevents it"
    if has_several_nodes() and any(process.before != process.after for process in found):
        yield "memory that is in use stays on its NUMA node; 'migratepages' moves it"


_ROWS, _MASKS = 60, 4  # processes that the table shows, and different masks that a cell shows


def render_rebound(
    found: Sequence[ReboundProcess], notes: Sequence[str], *, dry_run: bool, screen: Screen = PIPE
) -> str:
    """Render the processes with their CPUs before and after, what failed, and notes."""
    shown, width = found[:_ROWS], screen.text_width
    ranks = ["-" if each.wanted.rank is None else str(each.wanted.rank) for each in shown]
    columns = [
        Column(title="rank", cells=ranks, right=True),
        Column(title="pid", cells=[str(each.pid) for each in shown], right=True),
        Column(title="name", cells=[clean_line(each.name) for each in shown]),
        Column(title="threads", cells=[str(sum(each.after.values())) for each in shown], right=True),
        Column(title="CPUs before", cells=[_render_masks(each.before) for each in shown], grows=True),
        Column(title="CPUs after", cells=[_render_masks(each.after) for each in shown], grows=True),
    ]
    blocks = [render_table(columns, width)]
    if len(found) > len(shown):
        blocks.append(f"and {len(found) - len(shown)} more processes")
    for each in found:
        if not each.is_bound:
            wrong = sum(number for mask, number in each.after.items() if mask not in each.wanted.masks)
            why = "; ".join(dict.fromkeys(each.failures)) or "its threads still change their masks"
            who = f"{count(max(wrong, len(each.failures)), 'thread')} of {clean_line(each.name)} ({each.pid})"
            text = f"{who} could not be bound to {named('CPU', each.wanted.cpus)}: {why}"
            blocks.append(render_paragraph("error", text, width))
    blocks += [render_paragraph("note", note, width) for note in notes]
    if dry_run:
        blocks.append("dry run: nothing was changed")
    return "\n".join([blocks[0], "", *blocks[1:]] if len(blocks) > 1 else blocks)


def _render_masks(masks: MaskCounts) -> str:
    found = Counter(masks).most_common()
    if len(found) == 1:
        return render_cpus(found[0][0])
    shown = ", ".join(f"{render_cpus(mask)} ({number})" for mask, number in found[:_MASKS])
    return f"{shown}, ..." if len(found) > _MASKS else shown


def render_rebound_json(found: Sequence[ReboundProcess], notes: Sequence[str], *, dry_run: bool) -> str:
    """Render the processes as JSON, schema ompbind-rebind/1."""
    processes = [
        {
            "pid": each.pid,
            "name": each.name,
            "rank": each.wanted.rank,
            "cpus": str(each.wanted.cpus),
            "bound": each.is_bound,
            "before": _list_masks(each.before),
            "after": _list_masks(each.after),
            "failures": list(each.failures),
        }
        for each in found
    ]
    record = {"schema": "ompbind-rebind/1", "dry_run": dry_run, "processes": processes, "notes": list(notes)}
    return json.dumps(record, indent=2)


def _list_masks(masks: MaskCounts) -> list[dict[str, object]]:
    return [{"cpus": str(mask), "threads": number} for mask, number in Counter(masks).most_common()]


VERB = Verb(
    "rebind",
    rebind,
    summary="Give running processes the CPUs of a plan.",
    page="verify",
    examples=EXAMPLES,
    words="targets",
    complete_word=lambda _: sorted({run.run_id for run in read_visible_runs()}),
)
