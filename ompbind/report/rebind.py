"""The result of `ompbind rebind`: a table of processes, and JSON (schema ompbind-rebind/1)."""

import json
from collections import Counter
from collections.abc import Sequence

from ompbind.cpuset import count, named
from ompbind.execution.rebind import MaskCounts, ReboundProcess
from ompbind.report.text import PIPE, Column, Screen, render_cpus, render_paragraph, render_table
from ompbind.text import clean_line

_ROWS = 60  # processes that the table shows
_MASKS = 4  # different masks that a cell shows


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
            number = max(wrong, len(each.failures))
            who = f"{count(number, 'thread')} of {clean_line(each.name)} ({each.pid})"
            text = f"{who} could not be bound to {named('CPU', each.wanted.cpus)}: {why}"
            blocks.append(render_paragraph("error", text, width))
    blocks += [render_paragraph("note", note, width) for note in notes]
    if dry_run:
        blocks.append("dry run: nothing was changed")
    return "\n".join([blocks[0], "", *blocks[1:]] if len(blocks) > 1 else blocks)


def _render_masks(masks: MaskCounts) -> str:
    """Render masks, the most frequent first, each with its number of threads if there are several masks."""
    found = Counter(masks).most_common()
    if len(found) == 1:
        return render_cpus(found[0][0])
    shown = [f"{render_cpus(mask)} ({number})" for mask, number in found[:_MASKS]]
    return ", ".join([*shown, *(["..."] if len(found) > _MASKS else [])])


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
