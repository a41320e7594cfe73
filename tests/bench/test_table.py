"""Results as tables, comparisons and exports: they fit every terminal, and say everything in words."""

import csv
import json
import re
import subprocess
from statistics import fmean, median, stdev

import pytest

from ompbind.bench.compare_sessions import compare_sessions, render_failure, render_sessions
from ompbind.bench.comparing import find_cut, make_median_interval
from ompbind.bench.decision import conclude
from ompbind.bench.export import EXPORTS
from ompbind.bench.records import Conditions, Metric, Rules, Status
from ompbind.bench.table import make_scale, render_bench
from ompbind.errors import RequestError
from ompbind.report.text import Screen, count_columns
from tests.bench import sessions
from tests.bench.sessions import NAMES, make_candidate, make_session, make_usual_session


def render(session, **screen):
    return render_bench(session, conclude(session), Screen(**screen))


PARTS = r"""
session: 73 runs and 6 warm-ups in 3 min: decided after 12 rounds
strategy=spread 1\.263 s 1\.08 1\.06 to 1\.14 12 best
default 1\.335 s 1\.038 1\.005 to 1\.12 12 faster
bind=thread 1\.377 s 1\.013 0\.94 to 1\.07 12 not known yet
unbound 1\.381 s 1 reference
smt=2 1\.752 s 0\.79 0\.15 to 0\.83 12 dropped early
preload=tcmalloc - - 0 disqualified
same plan: default: also smt=1
dropped early: smt=2; mask=0-1\|2-3;4: strategy=spread was better in all 12 rounds
disqualified: preload=tcmalloc: exit code 1: cannot load tcmalloc
ratio: compared with unbound in the same rounds; above 1 is faster
cannot run: ranks=99: 99 ranks need 99 CPUs, 16 are allowed
remark: smt=2: 1 of 12 values is an outlier: 5\.14 times the median
recommended: strategy=spread, 1\.08 times as fast as unbound, interval 1\.06 to 1\.14, from 12 rounds
ompbind run --strategy=spread -- python serve.py --name 'two words'
"""


def test_all_parts_of_a_session_are_shown_in_their_order():
    text = " ".join(render(make_usual_session(), width=160).split())
    assert re.search(".*".join(PARTS.strip().split("\n")), text)
    text = render(make_usual_session(options=("--name", "a")), width=160)
    assert text.startswith("command: ompbind bench --name a -- python serve.py"), "with groups, all of it"


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("make", [make_usual_session, sessions.make_scaling_session])
def test_every_width_fits_except_for_the_commands_to_paste(make, width):
    session = make()
    metrics = (*session.metrics, Metric(name="metric-0", pattern="x"))
    runs = (run.replace(values=(*run.values, 1e12)) for run in session.runs)
    many, conclusion = session.replace(metrics=metrics, runs=tuple(runs)), conclude(session)
    text = render_bench(many, conclusion, Screen(width=width), verbose=True)
    assert text.count("metric-0") == len(conclusion.groups)
    for line in f"{render(session, width=width)}\n{text}".splitlines():
        assert count_columns(line) <= width or re.match(r"    (ompbind|python)", line)


@pytest.mark.parametrize("is_unicode", [True, False])
def test_text_of_programs_cannot_control_the_terminal_and_the_command_can_be_pasted(is_unicode):
    evil = "\x1b]0;title\x07\x1b[2J\r"
    words = ["a b", "it's", "$HOME", "x;y", "\n", "\\", "größe", "é\x017'\\", "", evil]
    hardware = sessions.HARDWARE.replace(processor=evil)
    session = make_usual_session(command=("printf", r"%s\0", *words), ended=evil, hardware=hardware)
    text = render(session, width=60, is_unicode=is_unicode)
    assert text.isascii() != is_unicode
    assert not set("\x1b\x07\r") & set(text)
    start, _, line = text.splitlines()[-1].partition(" -- ")
    assert start == "    ompbind run --strategy=spread"
    pasted = subprocess.run(["bash", "-c", line], capture_output=True, check=True, timeout=10)
    assert pasted.stdout.decode().split("\0") == [*words, ""]


@pytest.mark.parametrize(("failing", "rounds", "said", "not_said"), [
    (NAMES, 0, "disqualified: all candidates: exit code 1", "compared with"),
    (NAMES, 0, "recommended: nothing; no candidate could be measured", "compared with"),
    (NAMES[1:], 0, "recommended: nothing was compared", "known to be better"),
    (NAMES[:1], 12, "no candidate is known to be better than default ompbind run", "nothing"),
    ((), 12, "no candidate is known to be better than unbound, the command without ompbind", "nothing"),
    ((), 5, "recommended: nothing yet; about 3 more rounds would decide", "known to be better"),
])  # fmt: skip
def test_each_choice_is_explained_and_failed_candidates_are_not_compared(failing, rounds, said, not_said):
    session = make_session(dict.fromkeys(NAMES, 1.0), rounds=rounds, noise=0.001)
    failed = {"status": Status.FAILED, "values": (), "reason": "exit code 1"}
    runs = [run.replace(**failed) if run.candidate in failing else run for run in session.runs]
    text = " ".join(render(session.replace(runs=tuple(runs), rules=Rules(max_rounds=12))).split())
    assert said in text
    assert not_said not in text


def test_each_number_of_ranks_has_its_table_and_its_recommendation():
    names = ("2 ranks, unbound", "2 ranks, default", "4 ranks, unbound", "4 ranks, default")
    session = make_session(dict(zip(names, (1.0, 0.8, 0.5, 0.7), strict=True)))
    text = render(session, width=80)
    assert re.findall("^(.*)\n\ncandidate", text, re.M) == ["2 ranks", "4 ranks"]
    recommended = text.split("recommended for ")
    assert re.match("2 ranks: default, 1.*\n    ompbind run -n 2 -- python", recommended[1], re.S)
    assert recommended[2].startswith("4 ranks: no candidate")
    assert "'two words'" not in recommended[2], "copies without ompbind have no line to paste"
    text = export("markdown", session)
    assert text.startswith("### 2 ranks\n\n| candidate |")
    assert "\n| default |" in text


def test_the_effects_of_binding_and_of_the_number_of_ranks_have_separate_lines():
    text = render(sessions.make_scaling_session(command=("true",)), width=80)
    assert re.findall("^(.*)\n\ncandidate", text, re.M)[3:] == ["8 ranks", "numbers of ranks"]
    joined = " ".join(text.split())
    for effect, slow, expected in (("binding", "8 ranks, unbound", 1.18), ("ranks", "1 rank, smt=2", 6.5)):
        compared = rf"effect of {effect}: 8 ranks, smt=2 is (\S+) times as fast as {slow}, interval "
        (ratio,) = re.findall(compared, joined)
        assert float(ratio) == pytest.approx(expected, rel=0.02)
    assert joined.endswith("recommended: 8 ranks, smt=2 ompbind run -n 8 --smt=2 -- true")


@pytest.mark.parametrize(("metric", "values", "texts"), [
    (Metric(), [0.0123, 0.4], ["12.30 ms", "400.00 ms"]), (Metric(), [0.4, 1.5], ["0.400 s", "1.500 s"]),
    (Metric(), [100_000.0], ["100000 s"]), (Metric(), [], []),
    (Metric(pattern="."), [1234.5, 9.9], ["1234.50", "9.90"]), (Metric(pattern="."), [0.000012], ["0.00001"]),
    (Metric(pattern="."), [3e12], ["3.000e+12"]), (Metric(pattern="."), [0.0, -2.0], ["0.000", "-2.000"]),
])  # fmt: skip
def test_values_of_a_column_have_one_unit_and_equal_decimals(metric, values, texts):
    assert list(map(make_scale(metric, values), values)) == texts


def make(values, **fields):
    """A session with these first metrics by candidate, after a warm-up that must not count."""
    runs = [
        sessions.make_timed_run(name, 0, value, round=number)
        for name, found in values.items()
        for number, value in enumerate((1000.0, *found))
    ]
    return make_session(runs=tuple(runs), **fields)


def compare(*compared):
    return {change.candidate: change for change in compare_sessions(compared)}


def test_what_gives_no_interval_or_ratio():
    for values, ratio in (([2.0] * 3, 0.5), ([], None), ([0.0, 1.0], None), ([-1.0, 1.0], None)):
        change = compare(make({"default": [1.0] * 8}), make({"default": values}))["default"]
        assert (change.ratio, change.interval, change.is_slower(0.05)) == (ratio, None, False)
        assert change.has_failed == (not values)


def test_several_sessions_and_candidates_that_only_some_have_are_compared_in_words():
    values = [
        {"unbound": [1.0] * 8, "smt=2": [2.0] * 8, "bind=core": [1.0] * 8, "bind=exact": [1.0] * 2},
        {"unbound": [3.0] * 8, "default": [2.0]},
        {"unbound": [2.0] * 8, "smt=2": [1.0] * 8, "bind=exact": [1.0] * 2, "bind=rank": [1.0]},
    ]
    sessions = [make(each, candidates=tuple(map(make_candidate, each))) for each in values]
    found = compare(*sessions)
    assert [*found] == ["unbound", "smt=2", "bind=core", "bind=exact", "default", "bind=rank"]
    assert (found["unbound"].medians, found["unbound"].ratio) == ((1.0, 3.0, 2.0), 0.5)
    assert found["default"].medians == (None, 2.0, None)
    text = render_sessions(sessions, [*found.values()], Screen(width=80))
    words = ("slower", "faster", "no valid run", "too few runs", "never valid", "new")
    for name, result in zip(found, words, strict=True):
        assert re.search(rf"^{name} .* {result}$", text, re.M)
    assert "session 3 compared with session 1; above 1, session 3 is faster" in text
    assert "differs: candidates: unbound; smt=2; bind=core; bind=exact, now unbound; smt=2;" in text
    assert max(map(len, text.splitlines())) <= 80


def test_failures_name_the_candidate_and_the_numbers_and_higher_may_be_better():
    before = make({"default": [1.0] * 9, "smt=2": [1.0] * 9, "unbound": [1.0] * 9})
    now = make({"default": [1.1] * 8 + [1.25], "smt=2": [1.03] * 9})
    found = compare(before, now)
    assert [(name, each.is_slower(0.05), each.has_failed) for name, each in found.items()] == [
        ("unbound", False, True), ("default", True, False), ("smt=2", False, False),
    ]  # fmt: skip
    assert "unbound has no valid run" in render_failure(found["unbound"], 0.05)
    slower = "default has a ratio of 0.91, interval 0.80 to 0.91; the limit is 0.952"
    assert slower in render_failure(found["default"], 0.05)
    assert not found["default"].is_slower(0.11)
    assert not any(each.has_failed or each.is_slower(0.05) for each in compare(now, before).values())
    rates = [each.replace(metrics=sessions.TWO_METRICS) for each in (before, now)]
    assert compare(*rates)["default"].ratio == pytest.approx(1.1), "more is better"
    with pytest.raises(RequestError, match="wall time, tokens/s"):
        compare(before, rates[1])


@pytest.mark.parametrize(("count", "error", "cut"), [
    (5, 0.05, 0), (6, 0.05, 1), (8, 0.05, 1), (9, 0.05, 2), (20, 0.05, 6), (100, 0.05, 40), (7, 0.01, 0),
    (8, 0.01, 1), (11, 0.01, 1), (12, 0.01, 2), (50, 0.01, 16), (5000, 0.05, 2431),
])  # fmt: skip
def test_the_limits_are_those_of_the_sign_test(count, error, cut):
    assert find_cut(count, error) == cut
    assert make_median_interval(range(1, count + 1), error) == ((cut, count + 1 - cut) if cut else None)


COMMAND = "python serve.py --name 'two words'"


def export(name, session=None):
    session = session or make_usual_session()
    return EXPORTS[name][0](session, conclude(session))


def test_json_has_the_conclusion_and_the_form_of_hyperfine():
    """What its plot_whisker.py, advanced_statistics.py and plot_parametrized.py read."""
    record = json.loads(export("json"))
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
    session = make_usual_session(candidates=(make_candidate("mask=0,1|2,3"),))
    first = session.runs[0].replace(conditions=Conditions(throttled_s=0.5), candidate="mask=0,1|2,3")
    session = session.replace(runs=(first, *session.runs[1:]))
    rows = list(csv.DictReader(export("csv", session).splitlines()))
    assert [row["candidate"] for row in rows] == [run.candidate for run in session.runs]
    assert [float(row["wall time"]) for row in rows[:3]] == [run.values[0] for run in session.runs[:3]]
    assert (rows[0]["throttled_s"], rows[1]["throttled_s"]) == ("0.5", "")
    assert (rows[-1]["status"], rows[-1]["wall time"]) == ("failed", "")
    assert rows[-1]["reason"] == "exit code 1: cannot load tcmalloc"


def test_markdown_is_a_table():
    table, recommended, command = export("markdown").split("\n\n", 2)
    rows = table.splitlines()
    assert rows[0].startswith("| candidate | time | ratio | interval | rounds | result |")
    assert rows[1].startswith("| :--- | ---: | ---: | :--- |")
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1
    assert r"mask=0-1\|2-3;4" in table
    assert recommended == "Recommended: strategy=spread"
    assert command == f"```sh\nompbind run --strategy=spread -- {COMMAND}\n```"
