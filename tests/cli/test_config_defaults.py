"""The text of configuration files: settings and presets, or an error with its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.config_defaults import DOTS_LIMIT, ConfigurationFile, find_preset, parse_file
from ompbind.cli.config_files import FileContent, FileKind
from ompbind.cli.option import Option
from ompbind.cli.readers import count_or, names_of, one_of
from ompbind.commands.placeholders import parse_assignment
from ompbind.errors import ConfigurationError, PositionError
from ompbind.masks.mask import parse_mask
from ompbind.report.text import render_error
from tests.long import examples


def option(name, **settings):
    return Option(f"--{name}", verbs=("run",), help="", **settings)


OPTIONS = (
    option("mask", read=parse_mask), option("strategy"),
    option("memory", read=one_of(("local", "bind")), words=("local", "bind")),
    option("ranks", number=True, read=count_or("auto")), option("timeout", number=True),
    option("strict", flag=True), option("verify", bare=""),
    option("preload", multiple=True, read=names_of("a library")),
    option("env", multiple=True, read=parse_assignment),
)  # fmt: skip
KEYS = {row.key: row for row in OPTIONS}


def parse(text):
    data = text.encode(errors="surrogateescape")
    return parse_file(FileContent(kind=FileKind.USER, path="/home/me/ompbind.toml", data=data), KEYS)


@pytest.mark.parametrize(("text", "expected"), [
    ('mask = "0-3"', [("mask", "0-3")]), ("ranks = 4", [("ranks", "4")]),
    ('ranks = "auto"', [("ranks", "auto")]), ("timeout = 1.5", [("timeout", "1.5")]),
    ("strict = true", [("strict", True)]), ("strict = false", [("strict", None)]),
    ("no-strict = true", [("strict", None)]), ("verify = true", [("verify", "")]),
    ("verify = false", [("verify", None)]), ('verify = "strict"', [("verify", "strict")]),
    ('preload = "tcmalloc"', [("preload", "tcmalloc")]),
    ('preload = ["a", "b"]', [("preload", "a"), ("preload", "b")]),
    ('preload = "a"\nno-preload = true', [("preload", None), ("preload", "a")]),
    ('env = ["A=1"]', [("env", "A=1")]),
    ('env = { A = "1", B = "{rank}" }', [("env", "A=1"), ("env", "B={rank}")]),
    ('[defaults.env]\nA = "1"', [("env", "A=1")]), ("", []),
])  # fmt: skip
def test_settings(text, expected):
    found = parse(f"[defaults]\n{text}\n").settings
    assert [(option.key, given.value) for option, given in found] == expected
    assert "defaults.env" not in text or found[0][1].place == "/home/me/ompbind.toml:3: defaults.env.A"


def file(kind, *presets):
    return ConfigurationFile(kind=kind, path=f"/{kind}.toml", presets=dict.fromkeys(presets, ()))


USER, PROJECT = file(FileKind.USER, "a", "site"), file(FileKind.PROJECT, "p", "q")


@pytest.mark.parametrize(("files", "name", "facts"), [
    ((USER, file(FileKind.PROJECT, "a")), "a", ["--preset", "/project.toml", "/user.toml"]),
    ((USER, PROJECT), "sites", ["'sites' is not defined", "did you mean site?"]),
    ((PROJECT,), "sites", ["p, q"]), ((), "sites", ["'ompbind config'"]),
])  # fmt: skip
def test_a_name_that_means_no_preset_or_two(files, name, facts):
    assert find_preset((USER, PROJECT), "p", "--preset") == PROJECT
    with pytest.raises(ConfigurationError) as caught:
        find_preset(files, name, "--preset")
    assert all(fact in f"{caught.value.message} {caught.value.hint}" for fact in facts)


@pytest.mark.parametrize(("text", "message", "hint"), [
    ("[defaults]\nstratgy = 'x'", ":2: defaults.stratgy is unknown", "did you mean strategy?"),
    ("[defaults]\nno-stratgy = true", ":2: defaults.no-stratgy is unknown", "did you mean no-strategy?"),
    ("[default]", ":1: default is unknown", "did you mean defaults?"),
    ("[defaults]\nxyz = 1", ":2: defaults.xyz is unknown", "'ompbind config --no-config' lists the keys"),
    ("preset = 1", ":1: preset is not a table", "write [preset.NAME] on a line, and its keys below"),
    ("mask = '0'", ":1: mask is unknown here", "write it below [defaults]"),
    ("[defaults]\nmemory = 'membind'", ":2: defaults.memory: 'membind'", "did you mean 'bind'?"),
    ("[defaults]\nranks = true", ":2: defaults.ranks is true or false, not a string or a number", ""),
    ("[defaults]\nstrict = 'yes'", ":2: defaults.strict is a string, not true or false", ""),
    ("[defaults]\nno-mask = false", ":2: defaults.no-mask is not true", ""),
    ("[defaults]\nno-mask = true\nmask='0'", ":3: defaults.mask and no-mask contradict", ""),
    ("[defaults.env]\nA = 1", ":2: defaults.env.A is a number, not a string", ""),
    ("[preset.'']\nmask = '0'", ":1: preset.'' has no name", ""),
    ("[defaults]\nmask = '3-1'", ":2: defaults.mask: ", ""),
    ("[defaults]\nenv = '1=2'", ":2: defaults.env: '1=2' is not NAME=VALUE", ""),
    ('[defaults.env]\n"A=B" = "1"', ":2: defaults.env.'A=B' is not the name of a variable", ""),
    ('[defaults.env]\nA = "\\u0000"', ":2: defaults.env.A contains a null character", ""),
    ("[defaults]\nmask = '0", ":2: ", ""), ("[a]\n[a]", ":2: cannot declare ('a',) twice", ""),
    ("a = " + "[" * 5000, "too many brackets inside each other", ""),
    ("a = " + "9" * 5000, "exceeds the limit", ""),
    ("a" + ".a" * (DOTS_LIMIT + 1) + " = 1", ":1: more than 100 dots in a line", ""),
    ("[defaults]\nmask = '\udcff'", ":2: the text is not UTF-8", ""),
])  # fmt: skip
def test_errors_have_a_line_and_a_hint(text, message, hint):
    with pytest.raises((ConfigurationError, PositionError)) as caught:
        parse(text)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.message.startswith("/home/me/ompbind.toml:")
    assert max(map(len, render_error(caught.value, 60).splitlines())) <= 60


PARTS = """
[defaults]|[preset]|[[preset.a]]|[preset.a.env]|[preset.b]|#|inherits = 'a'|match = { cpus = 8 }|env = [[1]]
mask = "0-3"|mask = 1979-05-27|ranks = 2|ranks = inf|env = ["A=1"]|env = {A="1"}|strict = true|no-mask = true
PORT = '{rank}'|timeout = 1.5|verify = ''|"|'|{|]|=|\x00|\udcff""".replace("\n", "|").split("|")


@examples(3)
@given(st.lists(st.sampled_from(PARTS), max_size=8).map("\n".join))
def test_any_text_is_an_error_that_names_the_file_or_settings(text):
    try:
        parse(text)
    except (ConfigurationError, PositionError) as error:
        assert error.message.startswith("/home/me/ompbind.toml:")
        assert render_error(error, 60)
