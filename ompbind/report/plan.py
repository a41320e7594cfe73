"""Plans for people: a table, and the commands of ranks."""

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from ompbind.commands.environment import RankIdentity, RunSpec
from ompbind.commands.placeholders import has_placeholders
from ompbind.commands.rank_command import RankCommand
from ompbind.cpuset import CpuSet, count, join_words
from ompbind.openmp.binding import Bind
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.request import MemoryMode, Request
from ompbind.report.text import (
    PIPE,
    Column,
    Screen,
    render_all_cpus,
    render_cpus,
    render_paragraph,
    render_table,
    wrap_indented,
)
from ompbind.report.topology import render_summary
from ompbind.text import clean_line, clean_lines


def render_plan(plan: Plan, screen: Screen = PIPE) -> str:
    """Render the plan as a table with its notes."""
    width = screen.text_width
    heading = (wrap_indented(line, width) for line in make_plan_heading(plan))
    notes = [
        render_paragraph("warning" if note.warning else "note", note.text, width) for note in plan.all_notes
    ]
    table = render_table(list(_columns(plan)), width)
    return "\n".join([*heading, "", table, *([""] if notes else []), *notes])


def render_rank(plan: Plan, identity: RankIdentity, node: str) -> str:
    """Return one rank of a job, on one line: "rank 3 of 8 on node n07: CPUs 24-31, 1 place, 8 threads"."""
    placement = plan.placements[identity.placement_index]
    cpus = render_all_cpus(placement.compute, placement.service_cpus)
    places = count(len(placement.places), "place") if placement.places else "no places"
    threads = count(placement.threads, "thread")
    text = f"rank {identity.rank} of {identity.size} on node {node}: {cpus}, {places}, {threads}"
    return ", ".join((text, *map(str, placement.devices)))


def _columns(plan: Plan) -> Iterator[Column]:
    ranks, requests, core_of = plan.placements, plan.rank_requests, plan.machine.table.core_of
    threads = [  # "8", or "4 × 2" for four processes with two threads each
        str(each.threads) if each.processes == 1 else f"{each.processes} × {each.process_threads}"
        for each in ranks
    ]
    cores = [str(len({core_of[cpu] for cpu in each.cpus})) for each in ranks]
    yield Column(title="rank", cells=[str(each.rank) for each in ranks], right=True)
    if plan.groups:
        yield Column(title="group", cells=list(plan.labels))
    yield Column(title="threads", cells=threads, right=True)
    yield Column(title="cores", cells=cores, right=True)
    has_service = any(each.service_cpus for each in ranks)
    has_policy = any(request.memory is not MemoryMode.LOCAL for request in requests)
    for title, is_shown, cells in (
        ("node", True, [str(CpuSet(each.nodes)) or "-" for each in ranks]),
        ("devices", plan.has_devices, [" ".join(map(str, each.devices)) or "-" for each in ranks]),
        ("memory", has_policy, [str(each.memory or "-") for each in ranks]),
        ("CPUs", True, [render_cpus(each.compute) for each in ranks]),
        ("service", has_service, [render_cpus(each.service_cpus) or "-" for each in ranks]),
        ("reserved", plan.reserved, [str(each.reserved) or "-" for each in ranks]),
        ("OpenMP places", True, list(map(_places, requests, ranks))),
    ):
        if is_shown:
            yield Column(title=title, cells=cells, grows=True)


def make_plan_heading(plan: Plan) -> tuple[str, str]:
    """Return two lines: how many ranks are planned and how, and for what machine."""
    machine = plan.machine
    where = "this machine" if machine.source == "live" else clean_lines(machine.source)
    ways = (
        f"{part.request.group} ({count(len(part.placements), 'rank')}, {_name_way(part.request)})"
        for part in plan.groups
    )
    way = join_words(ways) if plan.groups else _name_way(plan.request)
    return f"{count(len(plan.placements), 'rank')}, {way}, on {where}:", render_summary(machine)


def _name_way(request: Request) -> str:
    return "mask" if request.names_each_rank or request.is_unbound else request.strategy


def _places(request: Request, placement: Placement) -> str:
    """Return the OpenMP places of a rank in short: "1 place: whole rank", "4 places: {all} 2×{1} {2}"."""
    if not placement.places:
        return "none"
    if request.bind is Bind.RANK and len(placement.places) == 1:
        return "1 place: whole rank"
    in_column = placement.compute if request.bind is Bind.RANK else None  # of the table
    lists = ["CPUs" if place == in_column else str(place) for place in placement.places]
    if request.bind is not Bind.EXACT:
        lists[0] = "all"  # the initial thread may use all CPUs of the rank
    groups = [(cpus, len(list(equal))) for cpus, equal in groupby(lists)]
    texts = [f"{times}×{{{cpus}}}" if times > 1 else f"{{{cpus}}}" for cpus, times in groups]
    return f"{count(len(lists), 'place')}: {' '.join(texts)}"


def render_commands(commands: Sequence[RankCommand], variables: Collection[str], width: int) -> str:
    """Render the command and the directory of all ranks, and the variables with placeholders.

    What is the same for all ranks has a line. What differs is in a table with a row for each rank.
    """
    found = dict(_find_values(commands, variables))
    same = {title: values[0] for title, values in found.items() if len(set(values)) == 1}
    ranks_of = f"every rank of {commands[0].group}" if commands[0].group else "every rank"
    lines = [f"{title} of {ranks_of}: {clean_lines(value)}" for title, value in same.items()]
    different = [
        Column(title=title, cells=list(map(clean_line, values)), grows=True)
        for title, values in found.items()
        if title not in same
    ]
    if different:
        cells = [command.label or str(command.rank) for command in commands]
        ranks = Column(title="rank", cells=cells, right=not commands[0].group)
        lines += [*([""] if lines else []), render_table([ranks, *different], width)]
    return "\n".join(lines)


def render_command(command: RankCommand, spec: RunSpec) -> str:
    """Render the command, the directory and the variables of one rank of a job; "" if nothing was filled."""
    variables = find_filled_variables(spec)
    if not (variables or command.directory or command.argv != spec.argv):
        return ""
    values = _find_values([command], variables)
    return "\n".join(f"{title} of rank {command.rank}: {clean_lines(value)}" for title, [value] in values)


def find_filled_variables(spec: RunSpec) -> list[str]:
    """Return the names of the variables with placeholders."""
    return [name for name, value in spec.added_variables if has_placeholders(value)]


def _find_values(
    commands: Sequence[RankCommand], variables: Iterable[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield what is shown of commands: a title, and its value for each rank."""
    for name in dict.fromkeys(variables):
        yield name, [command.env.get(name, "") for command in commands]
    if any(command.directory for command in commands):
        yield "directory", [command.directory for command in commands]
    yield "command", [shlex.join(command.argv) for command in commands]
