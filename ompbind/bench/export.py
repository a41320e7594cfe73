"""The formats of `bench --export`: a session and its conclusion for other programs and documents.

JSON has the schema ompbind-bench-result/2. Its `results` have the keys and units of hyperfine's JSON export,
so that programs for it work, and further keys.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from statistics import fmean, median, stdev

from ompbind.bench import table
from ompbind.bench.records import Conclusion, Run, Session
from ompbind.bench.results import make_json


def render_json(session: Session, conclusion: Conclusion) -> str:
    """Render a session and its conclusion as JSON, schema ompbind-bench-result/2."""
    record = {
        "schema": "ompbind-bench-result/2",
        "version": session.version,
        "started": session.started,
        "ended": session.ended or None,
        "machine": make_json(session.hardware),
        "command": list(session.command),
        "options": list(session.options),
        "metrics": make_json(session.metrics),
        "rules": make_json(session.rules),
        "groups": [
            {
                "ranks": group.ranks,
                "reference": group.reference,
                "choice": group.choice or None,
                "comparisons": make_json(group.comparisons),
            }
            for group in conclusion.groups
        ],
        "recommended": [
            {
                "candidate": candidate.name,
                "ranks": candidate.ranks,
                "command": list(table.make_command(candidate, session.command)),
            }
            for candidate, _, _ in table.list_choices(session, conclusion)
        ],
        "refusals": make_json(session.refusals),
        "remarks": make_json(conclusion.remarks),
        "results": list(_make_results(session)),
    }
    return json.dumps(record, indent=2)


_OF_CANDIDATE = ("name", "kind", "ranks", "options", "cpus", "threads", "same")


def _make_results(session: Session) -> Iterator[dict[str, object]]:
    """Yield what hyperfine exports of a command, and more, for each candidate with a run that counts.

    Times are seconds: of the slowest rank, and CPU time as the mean of all runs.
    """
    counting = table.list_compared_runs(session)
    for candidate in session.candidates:
        runs = counting.get(candidate.name)
        if not runs:
            continue
        times = [max(run.wall_s, default=run.values[0]) for run in runs]
        memory = [run.max_rss_bytes for run in runs]
        yield {
            "command": table.join_command(table.make_command(candidate, session.command)),
            "mean": fmean(times),
            "stddev": stdev(times) if len(times) > 1 else None,
            "median": median(times),
            "user": fmean(run.user_s for run in runs),
            "system": fmean(run.system_s for run in runs),
            "min": min(times),
            "max": max(times),
            "times": times,
            **({} if None in memory else {"memory_usage_byte": memory}),
            "exit_codes": [max(run.exit_codes, default=0) for run in runs],
            **({"parameters": dict(candidate.choices)} if candidate.choices else {}),
            **{name: getattr(candidate, name) for name in _OF_CANDIDATE},
            "values": [list(run.values) for run in runs],
        }


def render_csv(session: Session, conclusion: Conclusion) -> str:
    """Render all runs as CSV, warm-ups and failed runs too: a row for each, in the order of the runs."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    nothing = Run(candidate="", number=0, round=0, started=0.0)  # for the names alone
    writer.writerow(name for name, _ in _list_cells(nothing, session))
    for run in session.runs:
        writer.writerow(value for _, value in _list_cells(run, session))
    return stream.getvalue().rstrip("\n")


def _list_cells(run: Run, session: Session) -> Iterator[tuple[str, object]]:
    """Yield the columns of a run, with their names; a value that is unknown is None."""
    names = ("number", "candidate", "round", "started", "status", "verification")
    yield from ((name, getattr(run, name)) for name in names)
    for metric, value in zip_longest(session.metrics, run.values):
        yield metric.name, value
    yield "wall_s", max(run.wall_s, default=None)
    used = ("user_s", "system_s", "max_rss_bytes", "forced_switches")
    yield from ((name, getattr(run, name)) for name in used)
    yield from ((name, getattr(run.conditions, name)) for name in type(run.conditions).fields)
    yield "exit_codes", " ".join(map(str, run.exit_codes))
    yield "reason", table.make_words(run.reason)


def render_markdown(session: Session, conclusion: Conclusion) -> str:
    """Render the tables of all groups in Markdown, and the recommended commands."""
    escape = partial(re.sub, r"([\\|*_`<\[\]])", r"\\\1")  # what Markdown would read as markup
    parts = []
    for group in conclusion.groups:
        if heading := table.name_ranks(group):
            parts.append(f"### {heading}")
        columns = table.list_columns(session, group)
        rows = [
            [column.title for column in columns],
            ["---:" if column.right else ":---" for column in columns],
            *zip(*(column.cells for column in columns), strict=True),
        ]
        parts.append("\n".join(f"| {' | '.join(map(escape, row))} |" for row in rows))
    for candidate, _, _ in table.list_choices(session, conclusion):
        words = table.join_command(table.make_command(candidate, session.command))
        parts.append(f"Recommended: {escape(candidate.name)}\n\n```sh\n{words}\n```")
    return "\n\n".join(parts)


def render_svg(session: Session, conclusion: Conclusion) -> str:
    """Render what a terminal shows as an SVG picture."""
    from ompbind.report import picture  # noqa: PLC0415 - door: pictures

    return picture.render_svg(table.render_bench(session, conclusion, picture.SVG_SCREEN), "ompbind bench")


EXPORTS: Mapping[str, tuple[Callable[[Session, Conclusion], str], bytes]] = {
    "json": (render_json, b'"ompbind-bench-result/'),
    "csv": (render_csv, b"number,candidate,"),
    "markdown": (render_markdown, b"| "),
    "svg": (render_svg, b"<svg "),
}
"""Every format in the order of --help: its renderer, and what few other files have in their first bytes."""
