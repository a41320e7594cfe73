"""Exports: JSON that programs for hyperfine read, a row for each run as CSV, tables in Markdown."""

import csv
import json
from statistics import fmean, median, stdev
from xml.etree import ElementTree

import pytest

from ompbind.bench.export import EXPORTS
from ompbind.bench.records import Conditions
from tests.bench.sessions import make_candidate, make_conclusion, make_session, make_usual_session

COMMAND = "python serve.py --name 'two words'"


def render(name, session=None):
    session, conclusion = (session, make_conclusion(session)) if session else make_usual_session()
    return EXPORTS[name](session, conclusion)


def test_a_picture_is_the_table_and_loads_nothing():
    text = render("svg")
    shown = "".join(ElementTree.fromstring(text).itertext()).replace("\xa0", " ")
    assert "strategy=spread" in shown
    assert "url(http" not in text


def test_json_has_the_conclusion_and_the_form_of_hyperfine():
    """What its plot_whisker.py, advanced_statistics.py and plot_parametrized.py read."""
    record = json.loads(render("json"))
    assert record["schema"] == "ompbind-bench-result/2"
    command = ["ompbind", "run", "--strategy=spread", "--", "python", "serve.py", "--name", "two words"]
    assert record["recommended"] == [{"candidate": "strategy=spread", "ranks": 1, "command": command}]
    (group,) = record["groups"]
    assert (group["reference"], group["choice"]) == ("unbound", "strategy=spread")
    assert group["comparisons"][0]["result"] == "best"
    assert (record["refusals"][0]["name"], record["remarks"][0]["code"]) == ("ranks=99", "outliers")
    results = record["results"]
    assert len(results) == 6  # a candidate without a valid run has no times
    assert results[0]["command"] == COMMAND
    for each in results:
        times = each["times"]
        assert len(times) == 12
        numbers = (fmean(times), stdev(times), median(times), min(times), max(times))
        found = [each[name] for name in ("mean", "stddev", "median", "min", "max")]
        assert found == pytest.approx(numbers)
        assert min(each["user"], each["system"]) > 0
    expected = {
        "command": f"ompbind run --strategy=spread -- {COMMAND}", "parameters": {"strategy": "spread"},
        "memory_usage_byte": [300 << 20] * 12, "exit_codes": [0] * 12,
    }  # fmt: skip
    assert results[2].items() >= expected.items()


def test_csv_has_all_runs():
    session, _ = make_usual_session(candidates=(make_candidate("mask=0,1|2,3"),))
    first = session.runs[0].replace(conditions=Conditions(throttled_s=0.5), candidate="mask=0,1|2,3")
    session = session.replace(runs=(first, *session.runs[1:]))
    rows = list(csv.DictReader(render("csv", session).splitlines()))
    assert [row["candidate"] for row in rows] == [run.candidate for run in session.runs]
    assert [float(row["wall time"]) for row in rows[:3]] == [run.values[0] for run in session.runs[:3]]
    assert (rows[0]["throttled_s"], rows[1]["throttled_s"]) == ("0.5", "")
    assert (rows[-1]["status"], rows[-1]["wall time"]) == ("failed", "")
    assert rows[-1]["reason"] == "exit code 1: cannot load tcmalloc"


def test_markdown_is_a_table_and_heads_a_group_with_its_number_of_ranks():
    table, recommended, command = render("markdown").split("\n\n", 2)
    rows = table.splitlines()
    assert rows[0].startswith("| candidate | time | ratio | interval | rounds | result |")
    assert rows[1].startswith("| :--- | ---: | ---: | :--- |")
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1
    assert r"mask=0-1\|2-3;4" in table
    assert recommended == "Recommended: strategy=spread"
    assert command == f"```sh\nompbind run --strategy=spread -- {COMMAND}\n```"
    names = ("2 ranks, unbound", "2 ranks, default")
    text = render("markdown", make_session({make_candidate(name, ranks=2): 1.0 for name in names}))
    assert text.startswith("### 2 ranks\n\n| candidate |")
    assert "\n| default |" in text
