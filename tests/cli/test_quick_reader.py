"""The quick reader and click read the same command lines in the same way."""

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ompbind.cli.click_main import make_click_command
from ompbind.cli.options.option import Precedence
from ompbind.cli.options.table import find_options
from ompbind.cli.options.values import Values
from ompbind.cli.quick_reader import read_quickly
from ompbind.cli.verb import read_values
from ompbind.errors import OmpbindError
from tests.long import LONG

COMMANDS = {verb: make_click_command(verb) for verb in ("run", "exec")}
TEXTS = [
    "1",
    "0",
    "4",
    "auto",
    "all",
    "0-3|4",
    "spread",
    "strict",
    "A=1",
    "B={rank}",
    "tag",
    "5m",
    "x y",
    "é",
]
ODD = [
    "-",
    "--",
    "",
    "=",
    "-x",
    "--nope",
    "--rank",
    "-nv",
    "-vq",
    "-n=2",
    "--ranks=",
    "--verify=",
    "--help",
    "-h",
]


def words_of(options):
    """Command lines: mostly options with their values, and words that are unusual."""
    names = [name for option in options for name in (*option.names, option.reset_name)]
    name, text = st.sampled_from(names), st.sampled_from(TEXTS)
    forms = st.one_of(
        st.tuples(name),
        st.tuples(name, text),
        st.builds(lambda name, text: (f"{name}={text}",), name, text),
        st.builds(lambda name, text: (f"{name}{text}",), name, text),
        st.tuples(st.sampled_from(ODD)),
    )
    end = st.sampled_from([("--", "cmd"), ("cmd", "-n", "7"), ("--", "-n"), ("--",), (), ("cmd", "--", "x")])
    return st.builds(lambda parts, end: [*sum(parts, ()), *end], st.lists(forms, max_size=5), end)


def read_with_click(verb, args):
    command = COMMANDS[verb]
    try:
        return command.make_line(command.make_context(verb, list(args)))
    except (click.UsageError, click.exceptions.Exit):
        return None


def values_of(verb, line):
    """The values of all options and their sources, or the error."""
    values = Values(verb, find_options(verb), line.words)
    try:
        read_values(values, line)
    except OmpbindError as error:
        return error.message
    return {name: (values[name], values.sources(name)) for name in values}, values.words


@settings(max_examples=100_000 if LONG else 2_000, deadline=None)
@given(st.data(), st.sampled_from(["run", "exec"]))
def test_both_readers_agree(data, verb):
    args = data.draw(words_of(find_options(verb)))
    quick = read_quickly(args, find_options(verb))
    if quick is not None:
        read = read_with_click(verb, args)
        assert read is not None, args
        assert values_of(verb, quick) == values_of(verb, read)


@pytest.mark.parametrize(
    "args",
    [
        "-n 4 -- cmd", "-n4 cmd", "--ranks 4 cmd -v", "--ranks=4 -m 0|1 -s spread -- cmd", "-v -- cmd",
        "--env A=1 --env B=2 --no-env --env C=3 -- cmd", "--verify -- cmd", "--verify=strict cmd",
        "--no-verify --timeout 5m --share --no-share -- cmd", "--verify -v -- cmd", "--mask=a=b -- cmd",
    ],
)  # fmt: skip
def test_plain_lines_are_read_quickly(args):
    quick = read_quickly(args.split(), find_options("run"))
    read = read_with_click("run", args.split())
    assert quick is not None
    assert values_of("run", quick) == values_of("run", read)
    assert all(given.source.level is Precedence.COMMAND_LINE for given in quick.givens)


@pytest.mark.parametrize(
    "args",
    [
        "--help", "-h -- cmd", "--nope -- cmd", "--rank 2 -- cmd", "-n", "-n -- cmd", "-n -2 cmd", "", "--",
        "-vq -- cmd", "-n=2 -- cmd", "--ranks= -- cmd", "--dry-run=1 -- cmd", "--verify strict -- cmd",
        "--no-ranks=2 -- cmd", "--help-all -- cmd", "- cmd",
    ],
)  # fmt: skip
def test_unusual_lines_are_left_to_click(args):
    assert read_quickly(args.split(), find_options("run")) is None
