"""How numbers and commands are written."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.records import Metric
from ompbind.report.bench.measurements import (
    join_command,
    make_scale,
)
from tests.bench.sessions import TWO_METRICS


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
