"""The text of configuration files: settings and presets, or an error with its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.config_files import FileContent, FileKind
from ompbind.cli.config_parse import DOTS_LIMIT, parse_file
from ompbind.cli.option import Option
from ompbind.cli.readers import count_or, names_of, one_of
from ompbind.errors import ConfigurationError, PositionError
from ompbind.masks.parse import parse_mask
from ompbind.planning.placeholders import parse_assignment
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


def parse(text, path="/home/me/ompbind.toml", kind=FileKind.USER):
    return parse_file(FileContent(kind=kind, path=path, data=text.encode()), KEYS)


def settings_of(text):
    return [(setting.option.key, setting.value) for setting in parse(f"[defaults]\n{text}\n").settings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
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
    ],
)  # fmt: skip
def test_settings(text, expected):
    assert settings_of(text) == expected


def test_presets_with_their_environment_and_conditions():
    text = """
[preset.base]
mask = "0-3"

[preset."big one"]
inherits = "base"
match = { hostname = "node*", cpus = 64 }
no-mask = true

[preset."big one".env]
PORT = "{rank+8000}"
"""
    base, big = parse(text).presets
    assert (base.name, base.inherits, base.selects_machines) == ("base", "", False)
    assert (big.name, big.inherits, big.hostname, big.cpus) == ("big one", "base", "node*", 64)
    assert [(setting.option.key, setting.value, setting.place) for setting in big.settings] == [
        ("mask", None, "/home/me/ompbind.toml:8: preset.'big one'.no-mask"),
        ("env", "PORT={rank+8000}", "/home/me/ompbind.toml:11: preset.'big one'.env.PORT"),
    ]


def test_pyproject_has_its_tables_below_tool():
    text = '[project]\nname = "x"\n[tool.ompbind.defaults]\nranks = 2\n[tool.ompbind.preset.a]\nmask = "0"\n'
    found = parse(text, path="/p/pyproject.toml")
    assert [setting.place for setting in found.settings] == ["/p/pyproject.toml:4: defaults.ranks"]
    assert [preset.name for preset in found.presets] == ["a"]
    assert parse('[project]\nname = "[tool.ompbind"\n', path="/p/pyproject.toml").presets == ()


def test_a_named_pyproject_must_have_options():
    with pytest.raises(ConfigurationError, match=r"/p/pyproject.toml: there is no table \[tool.ompbind\]"):
        parse("[project]\n", path="/p/pyproject.toml", kind=FileKind.NAMED)


ERRORS = [
    ("[defaults]\nstratgy = 'x'", ":2: defaults.stratgy is unknown"),
    ("[defaults]\nranks = true", ":2: defaults.ranks is true or false, not a string or a number"),
    ("[defaults]\nmask = 3", ":2: defaults.mask is a number, not a string"),
    ("[defaults]\nstrict = 'yes'", ":2: defaults.strict is a string, not true or false"),
    ("[defaults]\nno-mask = false", ":2: defaults.no-mask is false"),
    ("[defaults]\nno-mask = true\nmask='0'", ":3: defaults.mask and no-mask contradict"),
    ("[defaults]\nenv = { A = 1 }", ":2: defaults.env.A is a number, not a string"),
    ("[defaults.env]\nA = 1", ":2: defaults.env.A is a number, not a string"),
    ("[preset.a]\nranks = 2\nmatch . cpu = 2", ":3: preset.a.match.cpu is unknown"),
    ("mask = '0'", ":1: mask is unknown here"),
    ("[preset.a]\nmatch = { cpus = 0 }", ":2: preset.a.match.cpus is 0"),
    ("[preset.a.match]\nhostname = 1", ":2: preset.a.match.hostname is 1"),
    ("[preset.'']\nmask = '0'", ":1: preset.'' has no name"),
    ("[defaults]\nmask = '3-1'", ":2: defaults.mask: "),
    ("[defaults]\nranks = 0", ":2: defaults.ranks: '0' is wrong"),
    ("[defaults]\nenv = '1=2'", ":2: defaults.env: '1=2' is not NAME=VALUE"),
    ('[defaults.env]\n"A=B" = "1"', ":2: defaults.env.'A=B' is not the name of a variable"),
    ('[defaults.env]\nA = "\\u0000"', ":2: defaults.env.A contains a null character"),
    ("[defaults]\nmask = '0", ":2: "),
    ("[a]\n[a]", ":2: cannot declare ('a',) twice"),
    ("a = " + "[" * 5000, "too many brackets inside each other"),
    ("a = " + "9" * 5000, "exceeds the limit"),
    ("a" + ".a" * (DOTS_LIMIT + 1) + " = 1", ":1: more than 100 dots in a line"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_errors_have_a_line(text, message):
    with pytest.raises((ConfigurationError, PositionError)) as caught:
        parse(text)
    assert message in caught.value.message
    assert caught.value.message.startswith("/home/me/ompbind.toml:")
    assert max(map(len, render_error(caught.value, 60).splitlines())) <= 60


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[defaults]\nstratgy = 'x'", "did you mean strategy?"),
        ("[defaults]\nno-stratgy = true", "did you mean no-strategy?"),
        ("[preset.a]\ninherit = 'x'", "did you mean inherits?"),
        ("[default]", "did you mean defaults?"),
        ("mask = '0'", "write it below [defaults]"),
        ("[defaults]\nxyz = 1", "'ompbind config --no-config' lists the keys"),
        ("[defaults]\nmemory = 'membind'", "did you mean 'bind'?"),
        ("[tool.ompbind]\nmask = '0'", "write it below [tool.ompbind.defaults]"),
        ("[tool.ompbind]\npreset = 1", "write [tool.ompbind.preset.NAME] on a line, and its keys below"),
    ],
)
def test_hints_name_what_is_meant(text, hint):
    with pytest.raises(ConfigurationError) as caught:
        parse(text, path="/p/pyproject.toml" if "tool" in text else "/ompbind.toml")
    assert caught.value.hint == hint


def test_bytes_that_are_no_text_have_a_line():
    content = FileContent(kind=FileKind.USER, path="/f", data=b"[defaults]\nmask = '\xff'")
    with pytest.raises(ConfigurationError, match="/f:2: the text is not UTF-8"):
        parse_file(content, KEYS)


PARTS = """
[defaults]|[preset]|[[preset.a]]|[preset.a.env]|[preset.b]|#|inherits = 'a'|match = { cpus = 8 }|env = [[1]]
mask = "0-3"|mask = 1979-05-27|ranks = 2|ranks = inf|env = ["A=1"]|env = {A="1"}|strict = true|no-mask = true
PORT = '{rank}'|timeout = 1.5|verify = ''|"|'|{|]|=|\x00|\udcff""".replace("\n", "|").split("|")


@examples(3)
@given(st.lists(st.sampled_from(PARTS), max_size=8).map("\n".join))
def test_any_text_is_an_error_that_names_the_file_or_settings(text):
    data = text.encode(errors="surrogateescape")
    try:
        parse_file(FileContent(kind=FileKind.USER, path="/f.toml", data=data), KEYS)
    except (ConfigurationError, PositionError) as error:
        assert error.message.startswith("/f.toml:")
        assert render_error(error, 60)
