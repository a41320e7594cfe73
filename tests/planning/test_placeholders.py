"""The grammar of placeholders."""

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ompbind.errors import PositionError
from ompbind.planning.placeholders import (
    NAMES,
    NUMBERS,
    check,
    fill,
    has_placeholders,
    make_literal,
)

fill_word = partial(fill, is_command=True)
FIELDS = {"rank": 10, "local_rank": 2, "size": 16, "cpus": "4-7,12", "run_id": "night"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("", ""),
        ("{rank}", "10"),
        ("{rank+8000}", "8010"),
        ("{rank-10}", "0"),
        ("{rank*3}", "30"),
        ("{rank*10+5}", "105"),
        ("{rank*2-1}", "19"),
        ("{local_rank}/{size}", "2/16"),
        ("perf.{rank}.{run_id}", "perf.10.night"),
        ("{cpus}", "4-7,12"),
        ("{rank+007}", "17"),
        ("{{rank}}", "{rank}"),
        ("{{rank+1}} {rank+1}", "{rank+1} 11"),
        ("{{foo}}", "{foo}"),
        ("{{rank:02}}", "{rank:02}"),
        ("{{{rank}}}", "{{rank}}"),
        ("{{rank},{size}}", "{10,16}"),
        ('{"a":1}', '{"a":1}'),
        ('{"a":{"rank":{rank}}}', '{"a":{"rank":10}}'),
        ("{a: 1, b: {rank}}", "{a: 1, b: 10}"),
        ("{a,b} {0..3} {} { rank } {1rank}", "{a,b} {0..3} {} { rank } {1rank}"),
        ("${rank} $PATH ${HOME}", "${rank} $PATH ${HOME}"),
        ("${{rank}} ${foo}", "${{rank}} ${foo}"),
        ("{rank", "{rank"),
        ("rank}", "rank}"),
        ("{rank {size}", "{rank 16"),
        ("\u00e9{rank}\u00e9", "\u00e910\u00e9"),
        ("{\u00e9}", "{\u00e9}"),
    ],
)
def test_texts_of_options_are_filled(text, filled):
    assert fill(text, FIELDS) == filled
    check(text)


@pytest.mark.parametrize(
    ("text", "marked", "message", "hint"),
    [
        ("a{foo}b", "{foo}", "unknown placeholder {foo}", "use {rank}, {local_rank}"),
        ("{Rank}", "{Rank}", "unknown placeholder {Rank}", "did you mean {rank}?"),
        ("{ranks+1}", "{ranks+1}", "unknown placeholder {ranks+1}", "did you mean {rank}?"),
        ("{rank}{rank:02}", "{rank:02}", "{rank:02} cannot be computed", "for example {rank*2+8000}"),
        ("{rank +1}", "{rank +1}", "cannot be computed", "write {{rank +1}}"),
        ("{rank*}", "{rank*}", "cannot be computed", ""),
        ("{rank+}", "{rank+}", "cannot be computed", ""),
        ("{rank+1+1}", "{rank+1+1}", "cannot be computed", ""),
        ("{rank+1*2}", "{rank+1*2}", "cannot be computed", ""),
        ("{rank**2}", "{rank**2}", "cannot be computed", ""),
        ("{rank--1}", "{rank--1}", "cannot be computed", ""),
        ("{rank+\u0661}", "{rank+\u0661}", "cannot be computed", ""),
        ("{rank+" + "9" * 19 + "}", "{rank+" + "9" * 19 + "}", "cannot be computed", ""),
        (
            "{cpus+1}",
            "{cpus+1}",
            "{cpus} is not a number",
            "write {cpus}; numbers are rank, local_rank, size",
        ),
        ("{run_id*2}", "{run_id*2}", "{run_id} is not a number", ""),
    ],
)
def test_wrong_placeholders_are_errors_with_their_position(text, marked, message, hint):
    for call in (check, lambda text: fill(text, FIELDS)):
        with pytest.raises(PositionError) as caught:
            call(text)
        error = caught.value
        assert (error.text, error.text[slice(*error.span)]) == (text, marked)
        assert message in error.message
        assert hint in error.hint


def test_a_negative_value_is_an_error_that_names_the_rank():
    check("{rank-11}")
    with pytest.raises(
        PositionError, match=r"rank 10: \{rank-11\} is -1, but must not be negative"
    ) as caught:
        fill("p={rank-11}", FIELDS)
    assert caught.value.span == (2, 11)


def test_placeholders_without_a_value_here_are_errors():
    check("logs/{run_id}/{{rank}}", ["run_id"])
    with pytest.raises(PositionError, match=r"\{rank\} has no value here") as caught:
        check("logs/{rank}", ["run_id"])
    assert caught.value.hint == "use {run_id}; for the text {rank}, write {{rank}}"


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("--port={rank+8000}", "--port=8010"),
        ("{foo}", "{foo}"),
        ("{foo+1} {{json}} {{.Names}}", "{foo+1} {{json}} {{.Names}}"),
        ("{{rank}}", "{rank}"),
        ("awk '{print $1}'", "awk '{print $1}'"),
        ("${rank}", "${rank}"),
    ],
)
def test_unknown_names_stay_in_a_command(word, filled):
    assert fill_word(word, FIELDS) == filled


def test_names_that_have_no_value_yet_stay_in_a_command():
    assert fill_word("{rank}-{cpus}-{{cpus}}", {"rank": 0}) == "0-{cpus}-{{cpus}}"
    with pytest.raises(PositionError):
        fill_word("{rank:02}", FIELDS)


@given(st.sampled_from(NUMBERS), st.integers(0, 10**6), st.integers(-(10**6), 10**6), st.integers(0, 10**6))
def test_arithmetic_is_that_of_python(name, factor, offset, value):
    text = f"{{{name}*{factor}{offset:+}}}"
    fields = {**FIELDS, name: value}
    if value * factor + offset >= 0:
        assert fill(text, fields) == str(value * factor + offset)
    else:
        with pytest.raises(PositionError):
            fill(text, fields)


PIECES = st.lists(
    st.sampled_from(
        [*NAMES, "foo", "{", "{", "}", "}", "$", "*", "+", "-", "2", ":", " ", '"', "\u00e9", "\0"]
    )
).map("".join)


@given(PIECES)
@example("{{rank}}")
def test_any_text_is_filled_or_an_error_in_it(text):
    for call in (fill, fill_word):
        try:
            filled = call(text, FIELDS)
        except PositionError as error:
            start, stop = error.span
            assert 0 <= start < stop <= len(text)
            assert text[start] == "{"
            assert text[stop - 1] == "}"
        else:
            assert "{" in text or filled == text


@given(PIECES)
def test_any_text_can_be_written_literally(text):
    assert fill(make_literal(text), FIELDS) == text


@pytest.mark.parametrize(("text", "expected"), [("{rank}", True), ("{{rank}}", False), ('{"a":1}', False)])
def test_texts_with_placeholders(text, expected):
    assert has_placeholders(text) is expected


@given(PIECES)
def test_text_without_names_is_not_changed(text):
    without = "".join(piece for piece in text if not (piece.isalpha() or piece == "_"))
    assert fill(without, FIELDS) == fill_word(without, FIELDS) == without


def test_long_texts_are_parsed_in_proportion_to_their_length():
    for piece in ("{", "{a", "{{a", "${", "{rank}", "{{rank}}", "}", "{rank:"):
        text = piece * 50_000
        try:
            fill(text + "}", FIELDS)
        except PositionError as error:
            assert error.span[1] <= len(text) + 1
