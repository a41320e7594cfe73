"""Exports: JSON that programs for hyperfine read, a row for each run as CSV, tables in Markdown."""

import csv
import json
from statistics import fmean, median, stdev
from xml.etree import ElementTree

import pytest

from ompbind.bench.export import EXPORTS
from ompbind.bench.records import Conditions
from tests.bench.sessions import make_candidate, make_conclusion, make_session, make_usual_session


def render(name, session=None, conclusion=None):
    if session is None:
        session, conclusion = make_usual_session()
    return EXPORTS[name](session, conclusion or make_conclusion(session))


@pytest.mark.parametrize("name", EXPORTS)
def test_every_format_renders(name):
    assert "strategy=spread" in render(name)


def test_a_picture_is_the_table_and_loads_nothing():
    text = render("svg")
    root = ElementTree.fromstring(text)
    assert "12 rounds" in "".join(root.itertext()).replace("\xa0", " ")
    assert "url(http" not in text


def test_json_has_the_conclusion():
    record = json.loads(render("json"))
    assert record["schema"] == "ompbind-bench-result/2"
    (recommended,) = record["recommended"]
    command = ["ompbind", "run", "--strategy=spread", "--", "python", "serve.py", "--name"]
    assert recommended == {"candidate": "strategy=spread", "ranks": 1, "command": [*command, "two words"]}
    (group,) = record["groups"]
    assert (group["reference"], group["choice"]) == ("unbound", "strategy=spread")
    assert group["comparisons"][0]["result"] == "best"
    assert record["refusals"][0]["name"] == "ranks=99"
    assert record["remarks"][0]["code"] == "outliers"


def test_json_has_the_form_of_hyperfine():
    """What its plot_whisker.py, advanced_statistics.py and plot_parametrized.py read."""
    results = json.loads(render("json"))["results"]
    assert len(results) == 6  # a candidate without a valid run has no times
    assert results[0]["command"] == "python serve.py --name 'two words'"
    assert results[2]["command"] == "ompbind run --strategy=spread -- python serve.py --name 'two words'"
    for each in results:
        times = each["times"]
        assert len(times) == 12
        assert each["mean"] == pytest.approx(fmean(times))
        assert each["stddev"] == pytest.approx(stdev(times))
        assert [each[name] for name in ("median", "min", "max")] == [median(times), min(times), max(times)]
        assert min(each["user"], each["system"]) > 0
    assert results[2]["parameters"] == {"strategy": "spread"}
    assert results[2]["memory_usage_byte"] == [300 << 20] * 12
    assert results[2]["exit_codes"] == [0] * 12


def test_csv_has_all_runs():
    session, conclusion = make_usual_session()
    first = session.runs[0].replace(conditions=Conditions(throttled_s=0.5))
    session = session.replace(runs=(first, *session.runs[1:]))
    rows = list(csv.DictReader(render("csv", session, conclusion).splitlines()))
    assert [row["candidate"] for row in rows] == [run.candidate for run in session.runs]
    assert [float(row["wall time"]) for row in rows[:3]] == [run.values[0] for run in session.runs[:3]]
    assert (rows[0]["throttled_s"], rows[1]["throttled_s"]) == ("0.5", "")
    assert (rows[-1]["status"], rows[-1]["wall time"]) == ("failed", "")
    assert rows[-1]["reason"] == "exit code 1: cannot load tcmalloc"
    rows = csv.DictReader(render("csv", make_session({"unbound": 1.0, "mask=0,1|2,3": 1.0})).splitlines())
    assert {row["candidate"] for row in rows} == {"unbound", "mask=0,1|2,3"}


def test_markdown_is_a_table_and_heads_a_group_with_its_number_of_ranks():
    text = render("markdown")
    table, recommended, command = text.split("\n\n", 2)
    rows = table.splitlines()
    assert rows[0].startswith("| candidate | time | ratio | interval | rounds | result |")
    assert rows[1].startswith("| :--- | ---: | ---: | :--- |")
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1
    assert r"mask=0-1\|2-3;4" in text
    assert recommended == "Recommended: strategy=spread"
    assert command == "```sh\nompbind run --strategy=spread -- python serve.py --name 'two words'\n```"
    names = ("2 ranks, unbound", "2 ranks, default")
    text = render("markdown", make_session({make_candidate(name, ranks=2): 1.0 for name in names}))
    assert text.startswith("### 2 ranks\n\n| candidate |")
    assert "\n| default |" in text
