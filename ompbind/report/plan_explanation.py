"""The metrics of a plan, the reasons for it, and several plans side by side, for people and programs."""

import json
from collections.abc import Iterator, Mapping, Sequence

from ompbind.errors import PlanError
from ompbind.planning.metrics import Metrics, measure_plan
from ompbind.planning.plan import Plan
from ompbind.planning.rank_variables import Variables
from ompbind.planning.rationale import make_reasons
from ompbind.report.plan import make_heading
from ompbind.report.plan_json import plan_record
from ompbind.report.text import (
    PIPE,
    Column,
    Screen,
    render_cpus,
    render_paragraph,
    render_table,
    wrap_indented,
)

_TITLES = {"borders": "splits"}
"""The titles of reasons that JSON calls otherwise."""


def render_explanation(plan: Plan, screen: Screen = PIPE) -> str:
    """Render the reason for each choice of a plan, and its measures."""
    metrics = measure_plan(plan)
    width = screen.text_width
    reasons = (
        render_paragraph(_TITLES.get(reason.about, reason.about), reason.text, width)
        for reason in make_reasons(plan, metrics)
    )
    rows = dict(_measure_rows(metrics))
    longest = max(map(len, rows))
    lines = (f"  {name:{longest}}  {value}" for name, value in rows.items())
    return "\n".join(["why:", *reasons, "", "metrics (lower is better):", *lines])


def _measure_rows(metrics: Metrics) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each measure, the most important first."""
    yield "cores idle", str(metrics.idle)
    yield "cores shared by several ranks", str(metrics.shared)
    yield "size difference, largest - smallest (cores)", str(metrics.imbalance)
    for border in metrics.borders:
        yield f"ranks split over {border.level.label}s although they fit in one", str(border.crossing)
    for border in metrics.borders:
        yield f"{border.level.label}s used, summed over ranks", str(border.touched)
    yield "ranks with performance and efficiency cores", str(metrics.mixed)
    if known := [distance for distance in metrics.device_distances if distance is not None]:
        yield "largest distance of a rank from its devices (10 is local)", str(max(known))


def render_comparison(
    plans: Mapping[str, Plan], refused: Mapping[str, PlanError], screen: Screen = PIPE
) -> str:
    """Render plans of one request side by side: the measures of each strategy, then the CPUs of every rank.

    `refused` are the strategies that cannot serve the request.
    """
    width = screen.text_width
    lines = []
    if plans:
        heading = make_heading(list(plans.values()), ", ".join(plans))
        lines = [*(wrap_indented(line, width) for line in heading), ""]
        measures = {name: dict(_measure_rows(measure_plan(plan))) for name, plan in plans.items()}
        names = list(next(iter(measures.values())))
        table = [Column(title="metric (lower is better)", cells=names, grows=True)]
        table += [Column(title=name, cells=list(row.values()), right=True) for name, row in measures.items()]
        lines += [render_table(table, width), "", render_table(_rank_columns(plans), width)]
    messages = [
        render_paragraph(f"{name}: warning", note.text, width)
        for name, plan in plans.items()
        for note in plan.notes
        if note.warning
    ]
    messages += [
        render_paragraph(name, f"{error.message} ({error.hint})", width) for name, error in refused.items()
    ]
    return "\n".join([*lines, *([""] if lines and messages else []), *messages])


def _rank_columns(plans: Mapping[str, Plan]) -> list[Column]:
    most = max(len(plan.placements) for plan in plans.values())
    columns = [Column(title="rank", cells=[str(rank) for rank in range(most)], right=True)]
    for name, plan in plans.items():
        cells = [render_cpus(placement.cpuset) for placement in plan.placements]
        columns.append(Column(title=name, cells=cells + ["-"] * (most - len(cells)), grows=True))
    return columns


def render_comparison_json(
    plans: Mapping[str, tuple[Plan, Sequence[Variables]]], refused: Mapping[str, PlanError]
) -> str:
    """Render plans of one request as JSON, schema ompbind-compare/1."""
    record = {
        "schema": "ompbind-compare/1",
        "plans": [plan_record(plan, variables) for plan, variables in plans.values()],
        "refused": [
            {"strategy": name, "text": error.message, "hint": error.hint} for name, error in refused.items()
        ],
    }
    return json.dumps(record, indent=2)
