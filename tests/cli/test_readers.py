"""Readers of the values of options for the command of ranks."""

import pytest

from ompbind.cli.readers import (
    read_directory,
    read_file_names,
    read_path,
    read_rank_list,
    read_seconds,
    read_wrapper_words,
)
from ompbind.cpuset import CpuSet
from ompbind.errors import OptionError, PositionError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("perf stat -o perf.{rank}", ("perf", "stat", "-o", "perf.{rank}")),
        ("sh -c 'a b' \"c d\" e\\ f", ("sh", "-c", "a b", "c d", "e f")),
        ("a '' # b", ("a", "", "#", "b")),
    ],
)
def test_a_wrapper_is_split_as_by_a_shell(text, words):
    assert read_wrapper_words(text) == words


@pytest.mark.parametrize(
    ("text", "marked", "message"),
    [
        ("sh -c 'a b", "'a b", "a quote is not closed"),
        ("a \"b\" 'c' \"d '", "\"d '", "a quote is not closed"),
        ("a 'b\\' c\"", '"', "a quote is not closed"),
        ('a "b\\"', '"b\\"', "a quote is not closed"),
        ("a b\\", "\\", "nothing follows the backslash"),
        ("a {foo}", "{foo}", "unknown placeholder {foo}"),
    ],
)
def test_a_wrong_wrapper_is_an_error_with_its_position(text, marked, message):
    with pytest.raises(PositionError) as caught:
        read_wrapper_words(text)
    error = caught.value
    assert (error.message, error.text[slice(*error.span)]) == (message, marked)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_wrapper_words, " ", "the program is missing"),
        (read_wrapper_words, "a\0", "the program cannot contain a null character"),
        (read_directory, "", "the name of a directory is missing"),
        (read_directory, "a\0", "the name of a directory cannot contain a null character"),
        (read_file_names, "", "the name of a file is missing"),
        (read_rank_list, "", "the number of a rank is missing"),
        (read_rank_list, "3-1", "'3-1' is not a list of ranks such as 0,3-5"),
        (read_rank_list, "-1", "'-1' is not a list of ranks such as 0,3-5"),
    ],
)
def test_values_that_no_rank_can_use_are_refused(read, text, message):
    with pytest.raises(OptionError) as caught:
        read(text)
    assert caught.value.message == message


def test_lists_of_ranks():
    assert read_rank_list("0,3-5") == CpuSet([0, 3, 4, 5])


def test_paths_may_have_the_run_id_only():
    assert read_path("logs/{run_id}/{a,b}") == "logs/{run_id}/{a,b}"
    with pytest.raises(PositionError, match=r"\{rank\} has no value here"):
        read_path("logs/{rank}")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("5m", 300), ("1.5h", 5400), ("0", 0), (".5", 0.5), ("1d", 86400), ("1h30m", 5400),
     ("1m30s", 90), ("1m1.5s", 61.5), ("1d2h3m4s", 93784), ("1.5h30m", 7200)],
)  # fmt: skip
def test_times(text, seconds):
    assert read_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "s5",
        "1m30",
        "30s1m",
        "1m2m",
        "1h 30m",
        "-5",
        "1e3",
        "1..5",
        "1:30",
        "5M",
        "٣m",
        "9" * 13,
        "1h.",
    ],
)
def test_texts_that_are_no_times(text):
    with pytest.raises(OptionError, match="is not a time"):
        read_seconds(text)
