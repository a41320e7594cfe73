"""Readers of the values of options."""

import pytest

from ompbind.cli.options import find_options
from ompbind.cli.readers import name_of, read_seconds, read_wrapper_words
from ompbind.errors import OptionError, PositionError
from ompbind.execution.restarts import RestartPolicy

(ON_FAILURE,) = (option for option in find_options("run") if option.name == "on_failure")


def test_a_wrapper_is_split_as_by_a_shell():
    words = read_wrapper_words("sh -c 'a b' \"c d\" e\\ f '' # g.{rank}")
    assert words == ("sh", "-c", "a b", "c d", "e f", "", "#", "g.{rank}")


@pytest.mark.parametrize(("read", "text"), [
    (read_wrapper_words, " "), (read_wrapper_words, "a 'b"), (read_wrapper_words, "a\\"),
    (read_wrapper_words, "a\0"), (name_of("a file"), ""), (name_of("a directory"), "a\0"),
])  # fmt: skip
def test_values_that_no_rank_can_use_are_refused(read, text):
    with pytest.raises(OptionError):
        read(text)


def test_paths():
    read = name_of("a directory", ["run_id"])
    assert read("logs/{run_id}/{a,b}") == "logs/{run_id}/{a,b}"
    with pytest.raises(PositionError, match=r"\{rank\} has no value here"):
        read("logs/{rank}")


def test_times():
    for text, seconds in {
        "90": 90, "5m": 300, "1.5h": 5400, "0": 0, ".5": 0.5, "1d": 86400, "1h30m": 5400, "1m30s": 90,
        "1m1.5s": 61.5, "1d2h3m4s": 93784, "1.5h30m": 7200,
    }.items():  # fmt: skip
        assert read_seconds(text) == seconds
    for text in (
        "", "m", "s5", "1m30", "30s1m", "1m2m", "1h 30m", "-5", "1e3", "1..5", "1:30", "5M", "٣m", "1h.",
        "9" * 13,
    ):  # fmt: skip
        with pytest.raises(OptionError, match="is not a time"):
            read_seconds(text)


def test_actions_on_failure():
    assert (ON_FAILURE.read("stop"), ON_FAILURE.read("continue")) == ("stop", "continue")
    assert ON_FAILURE.read("restart") == RestartPolicy()
    assert ON_FAILURE.read("restart:250") == RestartPolicy(limit=250)
    for text in ("", "restart:", "restart:0", "restart:-1", "restart:N", "restarts", "stop:1"):
        with pytest.raises(OptionError) as caught:
            ON_FAILURE.read(text)
        assert ("restart:N" in caught.value.hint) == text.startswith("restart:")
