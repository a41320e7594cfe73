"""The table of a session fits every terminal, says everything in words, and ends with a line to paste."""

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.conclusions import Comparison, ComparisonResult, Conclusion, Group
from ompbind.bench.records import Metric, Session
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
strategy=spread   1.221 s  1.119  1.108 to 1.162      12  best
default           1.265 s  1.096  1.075 to 1.112      12  faster
unbound           1.381 s      1                          reference
preload=tcmalloc        -      -                       0  disqualified
bind=thread       1.398 s  0.998  0.966 to 1.017      12  not known yet; about
                                                          24 more rounds
smt=2             1.752 s  0.789  0.775 to 0.802      12  slower
mask=0-1|2-3;4    2.251 s  0.619  0.604 to 0.624      12  dropped early

                 0.58                                          1           1.19
strategy=spread                                                │      ··●·─:┤·
default                                                        │    :├·●┤·   ·
bind=thread                                              · ·├·─●:┤··
smt=2                                    ·├:●┤· ·              │
mask=0-1|2-3;4     · ·├:●┤ ·                                   │
picture: · a round, : several, ├●┤ median and interval, │ unbound

ratio: compared with unbound in the same rounds; above 1 is faster
same plan: default: also smt=1
disqualified: preload=tcmalloc: exit code 1: cannot load tcmalloc
dropped early: mask=0-1|2-3;4: lost 4 of 4 rounds to default
cannot run: ranks=99: 99 ranks need 99 CPUs, 16 are allowed
remark: smt=2: 2 of 12 times are 30 % longer than the median

recommended: strategy=spread, 1.119 times as fast as unbound, interval 1.108 to
  1.162
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
    assert "strategy=spread  1.221 s 1.119 1.108 to 1.162 best" in text


def test_without_box_characters_all_is_ascii():
    session, conclusion = make_usual_session(command=("python", "größe.py"))
    text = render_bench(session, conclusion, Screen(draws=False))
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
            "default, 1.116 times as fast as unbound, interval 1.086 to 1.134\n    ompbind run -- true",
        ),
        ({"default": ComparisonResult.FASTER}, "not confirmed by further rounds\n    ompbind run -- true"),
        (
            {"default": ComparisonResult.SAME},
            "default, the simplest of the best; there is no real difference to unbound\n    ompbind run",
        ),
        (
            {"unbound": ComparisonResult.REFERENCE},
            "no candidate is known to be better than unbound, the command without ompbind\n    true",
        ),
        ({}, "nothing yet; about 7 more rounds would decide (see --max-rounds, --budget, --results)"),
    ],
    ids=["best", "faster", "same", "unbound", "none"],
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
    assert "recommended for 2 ranks: 2 ranks, default, 1." in text
    assert "    ompbind run -n 2 -- python" in text
    assert "no candidate is known to be better than 4 ranks, unbound" in " ".join(text.split())
    assert not text.rstrip().endswith("'two words'")  # copies without ompbind have no line to paste


def test_metrics_have_their_names_and_no_unit():
    session = make_session({"unbound": 1.0, "default": 1.2}, base=50.0, metrics=TWO_METRICS[:1])
    text = render_bench(session, make_conclusion(session, {"default": ComparisonResult.BEST}), Screen())
    assert re.search(r"candidate +tokens/s +ratio", text)
    assert re.search(r"default +\d\d\.\d\d +1\.\d{3} ", text)
    assert "above 1 is better" in text
    assert "default, ratio 1." in text


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
    rows = re.findall(r"^ +(\d) +(\d ranks?, \S+) +\d+\.\d+ ?m?s +(█+) *│?", text, re.MULTILINE)
    assert [(ranks, name.partition(", ")[2]) for ranks, name, _ in rows] == [
        (number, "smt=2") for number in "1248"
    ]
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
        group = Group(ranks=1, reference="", comparisons=comparisons)
        return render_bench(session, Conclusion(groups=(group,)), Screen())

    text = render(tuple(failed.values()))
    assert "disqualified: unbound; default: exit code 1\ndisqualified: smt=2: exit code 2\n" in text
    assert "compared with" not in text
    assert text.endswith("\nrecommended: nothing: every candidate has failed")
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
