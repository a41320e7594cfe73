"""What options add to click: occurrences from all sources, resets, groups, errors that name their source."""

import os
from unittest.mock import patch

import click
import pytest

from ompbind.cli.option import Given, Option, ValueLevel, VerbContext
from ompbind.cli.readers import at_least, names_of, one_of
from ompbind.errors import MaskError
from ompbind.masks.mask import parse_mask


def row(*names, **settings):
    return Option(*names, verbs=("run",), help="", **settings)


class Toy(click.Command):
    context_class = VerbContext


TOY = Toy("run", context_settings={"auto_envvar_prefix": "OMPBIND"}, params=[
    row("-n", "--size", read=at_least(1), default="1"),
    row("--library", read=names_of("a library"), multiple=True),
    row("-f", "--force", flag=True, spellings="force"), row("-q", "--quiet", flag=True, spellings="force"),
    row("--check", bare=""), row("--time", bare="", number=True), row("--mask", read=parse_mask),
    row("--memory", words=("local", "bind"), read=one_of(("local", "bind"))), row("--once", is_setting=False),
    click.Argument(["words"], nargs=-1),
])  # fmt: skip
BY_LETTER = {"u": ValueLevel.USER_FILE, "f": ValueLevel.FILE, "p": ValueLevel.PRESET}


def make_given(text):
    """Read "level:key=value", "level:key" (a flag) or "level:no-key" (a reset) of a file."""
    level, _, rest = text.partition(":")
    key, equals, value = rest.partition("=")
    found = None if key.startswith("no-") else value if equals else True
    return key.removeprefix("no-"), Given(value=found, level=BY_LETTER[level], place=text)


def parse(line="", files=(), variables=(), **settings):
    """Parse a command line with what files (lowest first) and variables ("NAME=VALUE") give."""
    default_map = {}
    for key, given in map(make_given, files):
        default_map[key] = (*default_map.get(key, ()), given)
    env = dict(f"OMPBIND_{variable}".split("=", 1) for variable in variables)
    with patch.dict(os.environ, env, clear=True):
        return TOY.make_context("run", line.split(" ") if line else [], default_map=default_map, **settings)


NO_VALUES = {
    "size": 1, "library": (), "force": False, "quiet": False, "check": None, "time": None, "mask": None,
    "memory": None, "once": None, "words": (),
}  # fmt: skip


@pytest.mark.parametrize(("line", "files", "variables", "expected"), [
    ("", [], [], {}), ("", ["u:size=2", "f:size=3"], [], {"size": 3}),
    ("", ["p:size=5"], ["SIZE=6"], {"size": 6}), ("--size 7", ["p:size=5"], ["SIZE=6"], {"size": 7}),
    ("--size 7", ["p:size=x"], ["SIZE=y"], {"size": 7}), ("--size x --size 7", [], [], {"size": 7}),
    ("-fn2", [], [], {"size": 2, "force": True}),
    ("--size=2 a -f", [], [], {"size": 2, "words": ("a",), "force": True}),
    ("-f -- --size 2", [], [], {"force": True, "words": ("--size", "2")}),
    ("", ["u:size=2", "p:no-size"], [], {}), ("--no-size", ["u:size=2"], ["SIZE=3"], {}),
    ("--size 4 --no-size", ["u:size=2"], [], {}), ("", ["u:no-size"], ["SIZE=3"], {"size": 3}),
    ("--library d --library e,f", ["u:library=a", "f:library=b"], ["LIBRARY=c"],
     {"library": ("a", "b", "c", "d", "e", "f")}),
    ("", [], ["LIBRARY=a 'b c'"], {"library": ("a", "b c")}),
    ("--library d", ["u:library=a", "p:no-library", "p:library=b"], ["LIBRARY=c"],
     {"library": ("b", "c", "d")}),
    ("--library d --no-library --library e", ["u:library=a"], ["LIBRARY=c"], {"library": ("e",)}),
    ("--no-library", ["u:library=a"], ["LIBRARY=c"], {}), ("", ["u:force"], ["FORCE=no"], {}),
    ("", ["u:force"], ["QUIET=yes"], {"force": True, "quiet": True}),
    ("--no-quiet", ["u:force"], ["FORCE=1"], {}), ("--no-quiet --force", [], ["QUIET=1"], {"force": True}),
    ("", ["u:force", "p:no-quiet"], ["QUIET=1"], {"quiet": True}), ("", ["u:force"], ["QUIET=off"], {}),
    ("--check=a --check", [], [], {"check": ""}), ("--check -f", [], [], {"check": "", "force": True}),
    ("--check -- a", [], [], {"check": "", "words": ("a",)}), ("--no-check", ["f:check=a"], [], {}),
    ("", [], ["CHECK=1"], {"check": ""}), ("", ["f:check=a"], ["CHECK=off"], {}),
    ("", [], ["TIME=1"], {"time": "1"}), ("", ["u:size=2"], ["SIZE="], {"size": 2}), ("", [], ["ONCE=a"], {}),
])  # fmt: skip
def test_values(line, files, variables, expected):
    assert parse(line, files, variables).params == {**NO_VALUES, **expected}


@pytest.mark.parametrize(("files", "variables"), [([], ["MASK=0-"]), (["f:mask=0-"], [])])
def test_a_wrong_mask_names_its_source_and_of_a_list_the_highest_level_counts(files, variables):
    with pytest.raises(MaskError) as caught:
        parse("", files, variables)
    assert caught.value.message.startswith("OMPBIND_MASK: " if variables else "f:mask=0-: ")
    assert parse("--library c", ["u:library=a"]).sources.level("library") == ValueLevel.COMMAND_LINE
