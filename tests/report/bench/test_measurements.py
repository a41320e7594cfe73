"""What tables and pictures show: which runs count, which rounds make a ratio, how numbers are written."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.records import ComparisonResult, Metric, Phase, Status
from ompbind.report.bench.measurements import (
    join_command,
    list_compared_runs,
    list_ratios,
    make_scale,
)
from tests.bench.sessions import TWO_METRICS, make_conclusion, make_run, make_session


def make_phases(**fields):
    """A session in which `default` is twice as fast in the choice, and four times in the confirmation."""
    session = make_session({"unbound": 1.0, "default": 0.5}, base=8.0, rounds=3, noise=0, **fields)
    further = [
        make_run(name, 100 + number, value, phase=Phase.CONFIRMATION, round=number // 2 + 1)
        for number, (name, value) in enumerate([("unbound", 8.0), ("default", 2.0)] * 2)
    ]
    return session.replace(runs=(*session.runs, *further))


def ratios_of(session, **fields):
    conclusion = make_conclusion(session, {"default": ComparisonResult.BEST}, default=fields)
    (group,) = conclusion.groups
    return pytest.approx(list_ratios(session, group)["default"])


def test_a_fresh_ratio_has_only_rounds_after_the_choice():
    assert ratios_of(make_phases()) == (2, 2, 2)
    assert ratios_of(make_phases(), fresh=True) == (4, 4)
    assert ratios_of(make_phases(metrics=TWO_METRICS[:1])) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("status", [Status.INVALID, None])
def test_runs_that_do_not_count_and_values_without_a_ratio_are_left_out(status):
    session = make_phases()
    changed = next(run for run in session.runs if run.candidate == "unbound" and run.round == 2)
    other = changed.replace(status=status) if status else changed.replace(values=(0.0,))
    session = session.replace(runs=tuple(other if run is changed else run for run in session.runs))
    assert len(list_compared_runs(session)["unbound"]) == 3 + 2 - bool(status)
    assert len(ratios_of(session).expected) == 2


@pytest.mark.parametrize(
    ("metric", "values", "texts"),
    [
        (Metric(), [0.0123, 0.4], ["12.30 ms", "400.00 ms"]),
        (Metric(), [0.4, 1.5], ["0.400 s", "1.500 s"]),
        (Metric(), [100_000.0], ["100000 s"]),
        (Metric(), [], []),
        (TWO_METRICS[0], [1234.5, 99.9], ["1234.50", "99.90"]),
        (TWO_METRICS[0], [0.000012], ["0.00001"]),
        (TWO_METRICS[0], [3e12], ["3.000e+12"]),
        (TWO_METRICS[0], [0.0, -2.0], ["0.000", "-2.000"]),
    ],
)
def test_values_of_a_column_have_one_unit_and_equal_decimals(metric, values, texts):
    assert list(map(make_scale(metric, values).render, values)) == texts


@given(st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126)), max_size=5))
def test_printable_words_are_quoted_as_posix_shells_read_them(words):
    assert shlex.split(join_command(words)) == words


@given(st.lists(st.text(), max_size=5), st.booleans())
def test_a_line_has_only_printable_characters(words, ascii_only):
    line = join_command(words, ascii_only=ascii_only)
    assert line.isprintable()
    assert line.isascii() or not ascii_only
