"""Placeholders in the texts of options and commands, NAME=VALUE of --env, and the lines of --env-file."""

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ompbind.commands import placeholders
from ompbind.commands.placeholders import check, fill, find_unfilled, parse_assignment, parse_env_file
from ompbind.errors import OptionError, PositionError

fill_word = partial(fill, is_command=True)
FIELDS = {"rank": 10, "local_rank": 2, "size": 16, "threads": 5, "cpus": "4-7,12", "run_id": "night"}


@pytest.mark.parametrize(("text", "filled"), [
    ("{rank*2-10}", "10"), ("perf.{rank}.{run_id} {local_rank}/{size} {cpus}", "perf.10.night 2/16 4-7,12"),
    ("{{rank+1}} {rank+1}", "{rank+1} 11"), ("{{foo}} {{rank:02}}", "{foo} {rank:02}"),
    ("{{{rank}}}", "{{rank}}"), ("{{rank},{size}}", "{10,16}"),
    ('{"a":{"rank":{rank}}}', '{"a":{"rank":10}}'), ("{a: 1, b: {rank}}", "{a: 1, b: 10}"),
    ("{a,b} {0..3} {} {1rank}", "{a,b} {0..3} {} {1rank}"),
    ("{ size++ } {{ rank }}", "{ size++ } {{ rank }}"),
    ("${rank} ${{rank}} ${foo}", "${rank} ${{rank}} ${foo}"),
    ("{rank {size} rank}", "{rank 16 rank}"), ("\u00e9{rank}{\u00e9}", "\u00e910{\u00e9}"),
])  # fmt: skip
def test_texts_of_options_are_filled(text, filled):
    assert fill(text, FIELDS) == filled
    check(text)


@pytest.mark.parametrize(("text", "marked", "message", "hint"), [
    ("a{foo}b", "{foo}", "unknown placeholder {foo}", "use {rank}, {local_rank}"),
    ("{Rank}", "{Rank}", "unknown placeholder {Rank}", "did you mean {rank}?"),
    ("{rank}{rank:02}", "{rank:02}", "{rank:02} cannot be computed", "for example {rank*2+8000}"),
    ("{rank +1}", "{rank +1}", "cannot be computed", "write {{rank +1}}"),
    ("{rank+\u0661}", "{rank+\u0661}", "cannot be computed", ""),
    ("{rank+" + "9" * 19 + "}", "{rank+" + "9" * 19 + "}", "cannot be computed", ""),
    ("{cpus+1}", "{cpus+1}", "{cpus} is not a number", "numbers are rank, local_rank, size, threads"),
])  # fmt: skip
def test_wrong_placeholders_are_errors_with_their_position(text, marked, message, hint):
    for call in (check, lambda text: fill(text, FIELDS)):
        check_error(call, text, marked, message, hint)


def check_error(call, text, marked, message, hint=""):
    with pytest.raises(PositionError) as caught:
        call(text)
    error = caught.value
    assert (error.text, error.text[slice(*error.span)]) == (text, marked)
    assert message in error.message
    assert hint in error.hint


def test_negative_values_and_placeholders_without_a_value_are_errors():
    check("{rank-11} logs/{run_id}/{{rank}}", ["rank", "run_id"])
    for text, hint in (("p={rank-11}", ""), ("p={threads-6}", "more CPUs")):
        check_error(lambda text: fill(text, FIELDS), text, text[2:], f"rank 10: {text[2:]} is -1", hint)
    only = partial(check, names=["run_id"])
    check_error(only, "logs/{rank}", "{rank}", "{rank} has no value here", "use {run_id}")


@pytest.mark.parametrize(("text", "found"), [
    ("out.{rank}.{run_id}", "{rank} {run_id}"), ('{"port":{rank+8000}}', "{rank+8000}"),
    ("cd $(dirname $0); serve {rank}", "{rank}"),
    # braces of other programs
    ('{"rank": 1}', ""), ("${rank} ${{rank}} #{rank} %{size} HEAD@{size}", ""), ("{{ rank }}", ""),
    ('import os; rank = 1; print(f"{rank} {rank+8000}")', ""), ("{size+=$1} END{print size}", ""),
    ("f() { rank; }", ""), ("{ rank } {foo} {rank2} {RANK} {}", ""),
])  # fmt: skip
def test_placeholders_in_a_command_are_found(text, found):
    assert " ".join(find_unfilled(text)) == found


OTHERS = ("foo", "{", "{", "}", "}", "$", "*", "+", "-", "2", ":", " ", '"', "\u00e9", "\0")
PIECES = st.lists(st.sampled_from([*placeholders.NAMES, *OTHERS])).map("".join)


@given(PIECES)
@example("{{rank}}")
def test_any_text_is_filled_or_an_error_in_it_and_can_be_written_literally(text):
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
    assert fill(placeholders.make_literal(text), FIELDS) == text
    without = "".join(piece for piece in text if not (piece.isalpha() or piece == "_"))
    assert fill(without, FIELDS) == fill_word(without, FIELDS) == without


def test_assignments_keep_their_value_and_have_the_position_of_a_wrong_placeholder():
    assert [parse_assignment(text) for text in ("A=b=c", "A=")] == [("A", "b=c"), ("A", "")]
    check_error(parse_assignment, "P={foo}", "{foo}", "unknown placeholder {foo}")
    for text in ("A", "=1", "A=\0", "1A=1", "a.b=1"):
        with pytest.raises(OptionError):
            parse_assignment(text)


@pytest.mark.parametrize(("text", "pairs"), [
    ("\n  \t\n# A=1\n  # B=2\n", []),
    ("\ufeffA=1\r\nB=2\r\n", [("A", "1"), ("B", "2")]), ("A= 1 # one ", [("A", " 1 # one ")]),
    ("A=\"1\"\nB='2'\nC=", [("A", '"1"'), ("B", "'2'"), ("C", "")]),
    ("HOME\nMISSING\n", [("HOME", "/{{rank}}")]),  # a value of the caller is not filled
    ("A=\u00e9\u2028B", [("A", "\u00e9\u2028B")]), ("PORT={rank+8000}", [("PORT", "{rank+8000}")]),
])  # fmt: skip
def test_lines_of_a_file(text, pairs):
    assert list(parse_env_file(text, "f", {"HOME": "/{rank}"})) == pairs


@pytest.mark.parametrize(("line", "marked", "message"), [
    ("export A=1", "export A", "'export A' is not the name of a variable"),
    ("=1", "=", "'' is not the name of a variable"), ("A =1", "A ", "'A ' is not the name of a variable"),
    ("A=x{foo}", "{foo}", "unknown placeholder {foo}"), ("A=x\0", "\0", "a value cannot contain a null"),
])  # fmt: skip
def test_a_wrong_line_is_an_error_with_file_line_and_position(line, marked, message):
    check_error(
        lambda text: parse_env_file(f"# 1\n{text}\nB=1", "f", {}), line, marked, f"f, line 2: {message}"
    )


@given(st.text('Ab1_=# \t\n\r{}"$rank\0\u00e9', max_size=60))
def test_any_file_is_read_or_an_error_with_a_position(text):
    try:
        pairs = parse_env_file(text, "f", {"A": "1"})
    except PositionError as error:
        assert error.message.startswith("f, line ")
        assert 0 <= error.span[0] < error.span[1] <= max(1, len(error.text))
        assert error.text in text
    else:
        assert all(name.isidentifier() and "\0" not in value for name, value in pairs)
