"""The table of a session fits every terminal, says everything in words, and ends with a line to paste."""

import re
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ompbind.bench.decision import conclude
from ompbind.bench.records import (
    Comparison,
    ComparisonResult,
    Conclusion,
    GroupConclusion,
    Metric,
    Rules,
    Session,
    Status,
)
from ompbind.report.bench.table import render_bench
from ompbind.report.text import Screen
from tests.bench.sessions import (
    HARDWARE,
    TWO_METRICS,
    make_candidate,
    make_conclusion,
    make_run,
    make_scaling_session,
    make_session,
    make_usual_session,
)

WIDTHS = [60, 80, 160]

AT_80 = """\
command: python serve.py --name 'two words'
machine: node1, EPYC 9654, CPUs 0-15
session: 73 runs and 6 warm-ups in 3 min: decided after 12 rounds

candidate            time  ratio  interval        rounds  result
strategy=spread   1.221 s  1.12   1.11 to 1.16        12  best
default           1.265 s  1.10   1.07 to 1.11        12  faster
unbound           1.381 s  1                              reference
preload=tcmalloc        -  -                           0  disqualified
bind=thread       1.398 s  0.998  0.966 to 1.017      12  not known yet; about
                                                          24 more rounds
smt=2             1.752 s  0.79   0.78 to 0.80        12  slower
mask=0-1|2-3;4    2.251 s  0.62   0.60 to 0.62        12  dropped early

                 0.58                                          1           1.19
strategy=spread                                                │      ··●·─:┤·
default                                                        │    :├·●┤·   ·
bind=thread                                              · ·├·─●:┤··
smt=2                                    ·├:●┤· ·              │
mask=0-1|2-3;4     · ·├:●┤ ·                                   │
picture: · a round, : several, ├●┤ median and interval, │ unbound

same plan: default: also smt=1
disqualified: preload=tcmalloc: exit code 1: cannot load tcmalloc
dropped early: mask=0-1|2-3;4: lost 4 of 4 rounds to default

ratio: compared with unbound in the same rounds; above 1 is faster
interval: contains the true ratio, with 95 % confidence
cannot run: ranks=99: 99 ranks need 99 CPUs, 16 are allowed
remark: smt=2: 2 of 12 times are 30 % longer than the median

recommended: strategy=spread, 1.12 times as fast as unbound, interval 1.11 to
  1.16, which is not confirmed by further rounds
    ompbind run --strategy=spread -- python serve.py --name 'two words'"""


def longest(text):
    return max(map(len, text.splitlines()))


def without_commands(text):
    """All lines but the commands to paste, which are never wrapped."""
    return "\n".join(line for line in text.splitlines() if not re.match(r"    (ompbind|python)", line))


def test_the_table_at_80_columns():
    assert render_bench(*make_usual_session(), Screen(width=80)) == AT_80


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", [make_usual_session, make_scaling_session])
def test_every_width_fits(make, width, verbose):
    text = render_bench(*make(), Screen(width=width), verbose=verbose)
    assert longest(without_commands(text)) <= width


@pytest.mark.parametrize(("width", "verbose", "is_shown"), [(80, False, 0), (80, True, 1), (160, False, 1)])
def test_wide_screens_and_verbose_show_what_runs_used(width, verbose, is_shown):
    text = render_bench(*make_usual_session(), Screen(width=width), verbose=verbose)
    assert [text.count(title) for title in ("CPU s", "forced", "migrations")] == [is_shown] * 3
    assert ("4.37  300 MiB      12           3" in text) == is_shown


def test_a_narrow_screen_keeps_names_whole():
    text = render_bench(*make_usual_session(), Screen(width=60))
    assert "strategy=spread  1.221 s 1.12  1.11 to 1.16   best" in text


def test_without_box_characters_all_is_ascii():
    session, conclusion = make_usual_session(command=("python", "größe.py"))
    text = render_bench(session, conclusion, Screen(has_box_characters=False))
    assert text.isascii()
    assert re.search(r"\[[=.:]*o[=.:]*\]", text)
    words = text.splitlines()[-1].split(" -- ")[1]
    assert words == r"python $'gr\303\266\303\237e.py'"


def test_dots_within_the_interval_are_visible():
    picture = render_bench(*make_usual_session(), Screen(width=160)).split("\n\n")[2]
    assert len(re.findall(r"├[─●]*[·:][─●·:]*┤", picture)) == 5, picture


def test_colours_add_nothing_but_emphasis():
    plain = render_bench(*make_usual_session(), Screen())
    styled = render_bench(*make_usual_session(), Screen(styled=True))
    assert "\033[1mstrategy=spread" in styled
    assert "\033[2mpreload=tcmalloc" in styled
    assert re.sub(r"\033\[\d+m", "", styled) == plain


def test_text_of_programs_cannot_control_the_terminal():
    evil = "\x1b]0;title\x07\x1b[2J\r"
    session, conclusion = make_usual_session(
        command=("python", evil), ended=evil, hardware=HARDWARE.replace(processor=evil)
    )
    assert not set("\x1b\x07\r") & set(render_bench(session, conclusion, Screen()))


@pytest.mark.parametrize("word", ["a b", "it's", "$HOME", "x;y", "\n", "\x1b[1m", "\\", "é\x01'\\", ""])
def test_the_recommended_command_can_be_pasted(word):
    session, conclusion = make_usual_session(command=("printf", "%s", word))
    line = render_bench(session, conclusion, Screen(width=60)).splitlines()[-1].strip()
    assert line.startswith("ompbind run --strategy=spread -- printf %s ")
    shown = subprocess.run(
        ["bash", "-c", line.partition(" -- ")[2]], capture_output=True, check=True, timeout=10
    ).stdout
    assert shown.decode() == word


def recommended(session, conclusion):
    text = render_bench(session, conclusion, Screen(width=200))
    return text[text.index("recommended") :]


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        (
            {"default": ComparisonResult.BEST},
            "default, 1.12 times as fast as unbound, interval 1.09 to 1.13, which is not confirmed"
            " by further rounds\n    ompbind run -- true",
        ),
        ({"default": ComparisonResult.FASTER}, "not confirmed by further rounds\n    ompbind run -- true"),
        (
            {"unbound": ComparisonResult.REFERENCE},
            "no candidate is known to be better than unbound, the command without ompbind\n    true",
        ),
        ({}, "nothing yet; about 7 more rounds would decide (see --max-rounds, --budget, --results)"),
    ],
    ids=["best", "faster", "unbound", "none"],
)
def test_each_choice_is_explained(choices, expected):
    session = make_session({"unbound": 1.0, "default": 0.9}, command=("true",))
    more = {} if choices else {"default": {"result": ComparisonResult.UNKNOWN, "more_rounds": 7}}
    assert expected in recommended(session, make_conclusion(session, choices, **more))


def test_a_fresh_ratio_says_so():
    session = make_session({"unbound": 1.0, "default": 0.9})
    conclusion = make_conclusion(session, {"default": ComparisonResult.BEST}, default={"fresh": True})
    assert "from 12 rounds after the choice" in recommended(session, conclusion)


def test_each_number_of_ranks_has_its_table_and_its_recommendation():
    factors = {
        make_candidate(f"{ranks} ranks, {name}", ranks=ranks): factor
        for ranks in (2, 4)
        for name, factor in (("unbound", 1.0), ("default", 0.9))
    }
    session = make_session(factors)
    choices = {"2 ranks, default": ComparisonResult.BEST, "4 ranks, unbound": ComparisonResult.REFERENCE}
    text = render_bench(session, make_conclusion(session, choices), Screen(width=80))
    assert text.count("candidate  ") == 3  # two tables, and the scaling
    assert re.search(r"^2 ranks\n\ncandidate .*\ndefault .*\nunbound ", text, re.MULTILINE)
    assert re.search(r"^4 ranks\n\ncandidate .*\ndefault .*\nunbound ", text, re.MULTILINE)
    assert "recommended for 2 ranks: default, 1." in text
    assert "    ompbind run -n 2 -- python" in text
    assert "recommended for 4 ranks: no candidate is known to be better than unbound" in " ".join(
        text.split()
    )
    assert "2 ranks, " not in text
    assert "ratio: compared with unbound in" in text
    assert not text.rstrip().endswith("'two words'")  # copies without ompbind have no line to paste


@pytest.mark.parametrize("width", WIDTHS)
def test_long_names_in_pictures_are_whole(width):
    """They differ in the middle only, so a cut could make them equal."""
    names = [f"strategy=balanced, bind={bind}, threads=16, smt=2" for bind in ("thread", "core", "exact")]
    session = make_session(dict.fromkeys(["unbound", *names], 1.0))
    picture = render_bench(session, make_conclusion(session), Screen(width=width)).split("\n\n")[2]
    assert longest(picture) <= width
    words = ["strategy=balanced,", "bind=thread,", "bind=core,", "bind=exact,", "threads=16,", "smt=2"]
    assert [picture.count(word) for word in words] == [3, 1, 1, 1, 3, 3]


@pytest.mark.parametrize(("number", "texts"), [(3, 3), (4, 0)])
def test_alike_reasons_of_many_dropped_candidates_are_not_repeated(number, texts):
    names = [f"smt={at}" for at in range(number)]
    session = make_session(dict.fromkeys(["unbound", "default", *names], 1.0))
    reasons = {
        name: {"result": ComparisonResult.DROPPED, "reason": f"default was better in all {at} rounds"}
        for at, name in enumerate(names, 4)
    }
    text = render_bench(session, make_conclusion(session, **reasons), Screen())
    assert text.count("dropped early: smt=") == text.count("default was better") == texts
    assert ("dropped early: 4 candidates lost every round to a better candidate" in text) == (not texts)


def test_nothing_is_compared_or_recommended_if_all_candidates_failed():
    session = make_session({"unbound": 1.0, "default": 1.0}, rounds=0)
    failed = [run.replace(status=Status.FAILED, values=(), reason="exit code 1") for run in session.runs]
    session = session.replace(runs=tuple(failed))
    text = render_bench(session, conclude(session), Screen())
    assert "recommended: nothing; no candidate could be measured" in text
    assert "compared with" not in text


def test_nothing_is_compared_if_all_candidates_but_the_reference_failed():
    session = make_session({"unbound": 1.0, "default": 1.0, "smt=2": 1.0}, rounds=0)
    runs = [
        run if run.candidate == "unbound" else run.replace(status=Status.FAILED, values=(), reason="code 1")
        for run in session.runs
    ]
    session = session.replace(runs=tuple(runs))
    text = " ".join(render_bench(session, conclude(session), Screen()).split())
    what = "unbound, the command without ompbind"
    assert f"recommended: nothing was compared: all candidates but {what} have failed" in text
    assert "known to be better" not in text


def test_a_default_that_is_the_reference_is_compared_with_nothing():
    session = make_session({"unbound": 1.0, "default": 1.0, "smt=2": 1.0}, rounds=12, noise=0.001)
    failed = {"status": Status.FAILED, "values": (), "reason": "exit code 1"}
    runs = [run.replace(**failed) if run.candidate == "unbound" else run for run in session.runs]
    session = session.replace(runs=tuple(runs), rules=Rules(max_rounds=12))
    assert "recommended: no candidate is known to be better than default\n    ompbind run" in render_bench(
        session, conclude(session), Screen()
    )


def test_metrics_have_their_names_and_no_unit():
    session = make_session({"unbound": 1.0, "default": 1.2}, base=50.0, metrics=TWO_METRICS[:1])
    text = render_bench(session, make_conclusion(session, {"default": ComparisonResult.BEST}), Screen())
    assert re.search(r"candidate +tokens/s +ratio", text)
    assert re.search(r"default +\d\d\.\d\d +1\.\d\d ", text)
    assert "above 1 is better" in text
    assert re.search(r"default, 1\.\d\d times as good as\s+unbound", text)


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (0.0123, r"\b1\d\.\d\d ms"),
        (0.5, r"\b5\d\d\.\d ms"),
        (12.0, r"\b12\.\d\d s"),
        (7200.0, r"\b7\d\d\d s"),
    ],
)
def test_times_have_units_with_four_digits(base, expected):
    session = make_session({"unbound": 1.0, "default": 1.0}, base=base, noise=0.001)
    assert re.search(expected, render_bench(session, make_conclusion(session), Screen()))


def test_further_metrics_and_counters_are_shown():
    session = make_session({"unbound": 1.0}, metrics=TWO_METRICS)
    counters = (("cpu-migrations", 3), ("cycles", 7))
    runs = [run.replace(values=(*run.values, 12.5), counters=counters) for run in session.runs]
    session = session.replace(runs=tuple(runs))
    text = render_bench(session, make_conclusion(session), Screen(width=160))
    assert re.search("latency .*cycles", text)
    assert re.search(r"unbound .*12\.50 .* 3 +7", text)
    assert "cpu-migrations" not in text  # they have a column already


@pytest.mark.parametrize("width", WIDTHS)
def test_many_counters_have_tables_of_their_own(width):
    session, conclusion = make_usual_session()
    names = [f"counter-{number}.with-a-long-name" for number in range(8)]
    counters = tuple((name, 123_456_789_012) for name in names)
    session = session.replace(runs=tuple(run.replace(counters=counters) for run in session.runs))
    text = render_bench(session, conclusion, Screen(width=width), verbose=True)
    assert longest(without_commands(text)) <= width
    assert [text.count(name) for name in names] == [1] * 8
    assert "123G" in text


def test_scaling_shows_the_best_of_each_number_of_ranks():
    text = render_bench(*make_scaling_session(), Screen(width=80))
    rows = re.findall(r"^ +(\d) +(\S+) +\d+\.\d+ ?m?s +(█+) *│?", text, re.MULTILINE)
    assert [(ranks, name) for ranks, name, _ in rows] == [(number, "smt=2") for number in "1248"]
    bars = [len(bar) for _, _, bar in rows]
    assert bars == sorted(bars, reverse=True)
    assert "scaling: │ ideal" in text


def test_a_session_without_runs_is_shown():
    session = Session(version="1", started=0.0, hardware=HARDWARE, command=("true",))
    text = render_bench(session, Conclusion(groups=()), Screen())
    assert "0 runs and 0 warm-ups: not finished" in text


def test_candidates_that_fail_for_one_reason_are_one_note():
    """There is no reference then, and no round would help."""
    names = ("unbound", "default", "smt=2")
    session = make_session(dict.fromkeys(names, 1.0), rounds=0)
    failed = {
        name: Comparison(candidate=name, result=ComparisonResult.DISQUALIFIED, reason=reason)
        for name, reason in zip(names, ("exit code 1", "exit code 1", "exit code 2"), strict=True)
    }

    def render(comparisons):
        group = GroupConclusion(ranks=1, reference="", comparisons=comparisons)
        return render_bench(session, Conclusion(groups=(group,)), Screen())

    text = render(tuple(failed.values()))
    assert "disqualified: unbound; default: exit code 1\ndisqualified: smt=2: exit code 2\n" in text
    assert "compared with" not in text
    assert text.endswith("\nrecommended: nothing; no candidate could be measured")
    same = render(tuple(each.replace(reason="exit code 1") for each in failed.values()))
    assert "\ndisqualified: all candidates: exit code 1\n" in same


def test_values_of_zero_and_below_are_shown():
    session = make_session({"unbound": 0.0, "default": -1.0}, metrics=TWO_METRICS[:1])
    conclusion = make_conclusion(make_session({"unbound": 1.0, "default": 1.0}))
    assert "default" in render_bench(session, conclusion, Screen())


names = st.text(min_size=1, max_size=40)
values = st.floats(1e-9, 1e12)


@given(
    name=names, value=values, other=values, ratio=st.floats(0.002, 500), width=st.sampled_from(WIDTHS),
    metric=st.builds(Metric, name=names, pattern=st.sampled_from(["", "x"])),
)  # fmt: skip
@example(
    name="0", value=1.0, other=1.0, ratio=0.00390625, width=60, metric=Metric(name="0" * 16, pattern="x")
)  # a long title beside ratios with exponents
def test_any_value_and_name_fits(name, value, other, ratio, width, metric):
    candidates = {make_candidate("unbound"): 1.0, make_candidate(f"x{name}"): 1.0}
    session = make_session(candidates, rounds=0, metrics=(metric,))
    runs = [
        make_run(candidate.name, number, found, round=1)
        for number, (candidate, found) in enumerate(zip(candidates, (value, other), strict=True))
    ]
    session = session.replace(runs=tuple(runs))
    varied = {f"x{name}": {"ratio": ratio, "interval": (ratio / 2, ratio * 2)}}
    text = render_bench(session, make_conclusion(session, **varied), Screen(width=width))
    assert longest(text) <= width
