"""Saved presets: the file keeps all its text, the reader finds the options again, nothing is overwritten."""

import os
import stat
import tomllib
from multiprocessing import get_context

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ompbind.cli.save_preset import check_preset, save_preset
from ompbind.errors import ConfigurationError, OmpbindError
from tests.bench.sessions import make_candidate
from tests.cli.command_lines import read, read_bench

USER = ".config/ompbind/ompbind.toml"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory and a working directory in it, without other configuration."""
    for name in [name for name in os.environ if name.startswith("OMPBIND_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_run(*words):
    """The values of `run` with these words."""
    return read("run", *words).params


def candidate(*words):
    return make_candidate("smt=2", options=words)


def write(home, text, name=USER, mode=0o644):
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    path.chmod(mode)
    return path


OPTIONS = [
    ("-n 2 --smt 2", {"ranks": 2, "smt": 2}), ("-n auto -s nodes", {"ranks": "auto", "strategy": "nodes"}),
    ("--mask 0-1|2-3 --strict", {"mask": "0-1|2-3", "strict": True}),
    ("--no-strict --no-threads", {"no-strict": True, "no-threads": True}),
    ("--preload tcmalloc", {"preload": "tcmalloc"}),
    ("--no-preload --preload tcmalloc --preload a,b", {"no-preload": True, "preload": ["tcmalloc", "a,b"]}),
    ("--env A=1 --env B=x=y", {"env": {"A": "1", "B": "x=y"}}),
    ("--no-env --env A=1", {"no-env": True, "env": {"A": "1"}}),
    ("--chdir /tmp/{rank} --fill", {"chdir": "/tmp/{rank}", "fill": True}), ("", {}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "table"), OPTIONS)
def test_options_become_keys_and_the_same_values(home, line, table):
    words = line.split()
    path = save_preset("fast", candidate(*words), read_bench())
    assert path == str(home / USER)
    assert tomllib.loads((home / USER).read_text()) == {"preset": {"fast": table}}
    expected, found = read_run(*words), read_run("--preset", "fast")
    different = [name for name in expected if expected[name] != found[name]]
    assert set(different) <= {"preset", "config"}


SHAPES = [
    "# mine\n",
    "[defaults]\nranks = 2  # two",
    "# a\n[preset.a]\nranks=1\n\n[defaults]\nsmt = 2\n\n[preset.b]\nranks=2 # b\n",
    "[preset]\na = { ranks = 1 } # x\n",
    "preset.a.ranks = 1\n",
    "[preset.a]\nranks = 1\n[preset.a.env]\nX = 'y'\n\n# the end\n",
    "[defaults]\r\nranks = 1 # one\r\n",
    '[defaults]\nenv = { A = "größe" }\n',
]


@pytest.mark.parametrize("text", SHAPES)
def test_all_text_of_the_file_stays(home, text):
    path = write(home, text)
    save_preset("fast", candidate("--smt=2"), read_bench())
    assert path.read_bytes().startswith(text.rstrip().encode())
    expected = tomllib.loads(text)
    expected.setdefault("preset", {})["fast"] = {"smt": 2}
    assert tomllib.loads(path.read_text()) == expected


def test_a_pyproject_gets_a_table_of_its_own(home):
    text = "[project]\nname = 'x'\n[tool.ompbind.defaults]\nranks = 1\n[tool.other]\ny = 1\n"
    path = write(home, text, "pyproject.toml")
    for name in ("fast", "two words", '"', "#"):
        save_preset(name, candidate("--smt=2"), read_bench("--config", str(path)))
        assert read_run("--config", str(path), "--preset", name)["smt"] == 2
    assert path.read_text().startswith(f"{text}\n[tool.ompbind.preset.fast]\nsmt = 2\n")
    assert not (home / USER).exists()


def test_the_preset_that_was_used_or_matches_the_machine_is_inherited(home):
    path = write(home, "[preset.base]\nenv = { A = '1' }\nthreads = 2\n")
    save_preset("fast", candidate("--preset", "base", "--env", "B=2"), read_bench("--preset", "base"))
    values = read_run("--preset", "fast")
    assert (values["env"], values["threads"]) == ((("A", "1"), ("B", "2")), 2)
    path.write_text(f"[preset.site]\nmatch = {{ hostname = '{os.uname().nodename}' }}\nthreads = 2\n")
    save_preset("fast", candidate("--smt=2"), read_bench())
    values = read_run("--preset", "fast")
    assert (values["threads"], values["smt"]) == (2, 2)


REFUSED = [
    ("[preset.fast]\nsmt = 1\n", "preset 'fast' is already defined"),
    ("preset = { a = { ranks = 1 } }\n", "the table [preset.fast] cannot be added"),
    ("[defaults\n", "expected"),
    ("#" * (256 << 10), "more than 256 KiB"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_file_that_cannot_get_the_preset_stays_as_it_is(home, text, message):
    values = read_bench()
    path = write(home, text)
    for call in (check_preset, lambda name, values: save_preset(name, candidate(), values)):
        with pytest.raises(ConfigurationError) as caught:
            call("fast", values)
        assert message in caught.value.message
        assert caught.value.message.startswith(str(path))
        assert path.read_text() == text
        assert os.listdir(path.parent) == [path.name]


def test_a_preset_of_a_project(home):
    """Its name would mean two presets in the directories of the project, and the user cannot inherit it."""
    path = write(home, "[preset.base]\nthreads = 2\n", "ompbind.toml")
    with pytest.raises(ConfigurationError, match=r"ompbind.toml: preset 'base' is already defined"):
        check_preset("base", read_bench())
    values = read_bench("--preset", "base")
    for call in (lambda: check_preset("fast", values), lambda: save_preset("fast", candidate(), values)):
        with pytest.raises(ConfigurationError, match="can inherit the preset 'base'") as caught:
            call()
        assert caught.value.hint == f"use --config {path}"
    named = read_bench("--config", str(path), "--preset", "base")
    assert save_preset("fast", candidate(), named) == str(path)


def test_files_that_others_control_are_refused(home):
    path = write(home, "", mode=0o666)
    with pytest.raises(ConfigurationError, match="other users may write to it"):
        check_preset("fast", read_bench())
    path.rename(home / "dotfiles.toml")
    path.symlink_to(home / "dotfiles.toml")
    with pytest.raises(ConfigurationError, match="it is a symbolic link"):
        save_preset("fast", candidate(), read_bench())
    assert (home / "dotfiles.toml").read_text() == ""


def test_modes(home):
    old = os.umask(0o002)
    try:
        save_preset("fast", candidate("--env", "TOKEN=x"), read_bench())
        assert stat.S_IMODE((home / USER).stat().st_mode) == 0o600
        assert stat.S_IMODE((home / USER).parent.stat().st_mode) == 0o700
        (home / USER).chmod(0o640)
        save_preset("faster", candidate(), read_bench())
    finally:
        os.umask(old)
    assert stat.S_IMODE((home / USER).stat().st_mode) == 0o640
    assert set(tomllib.loads((home / USER).read_text())["preset"]) == {"fast", "faster"}


def test_sessions_at_the_same_time_lose_no_preset(home):
    context = get_context("fork")
    processes = [
        context.Process(target=save_preset, args=(f"p{n}", candidate("-n", str(n)), read_bench()))
        for n in range(1, 9)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    presets = tomllib.loads((home / USER).read_text())["preset"]
    assert presets == {f"p{number}": {"ranks": number} for number in range(1, 9)}
    assert os.listdir((home / USER).parent) == ["ompbind.toml"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_characters="\0{}", codec="utf-8")))
def test_any_value(home, value):
    (home / USER).unlink(missing_ok=True)
    save_preset("fast", candidate("--env", f"A=x{value}"), read_bench())
    assert read_run("--preset", "fast")["env"] == (("A", f"x{value}"),)


@pytest.mark.parametrize(
    ("name", "found", "message"),
    [
        *((name, candidate(), ".") for name in ("", " ", "a\nb", "\x1b")),
        ("fast", candidate("--env", "A=\udcff"), "not UTF-8"),
        ("fast", make_candidate("unbound"), "."),
        ("fast", candidate("--unknown", "3"), "the options of smt=2 cannot be read: --unknown 3"),
    ],
)
def test_what_no_file_can_have_is_refused(home, name, found, message):
    with pytest.raises(OmpbindError, match=message):
        save_preset(name, found, read_bench())
    assert not (home / USER).exists()
