"""The table of options: values from all sources, and everything that follows from a row."""

import pytest
from ompbind.cli.options.option import Given, Option, Precedence, Source
from ompbind.cli.options.readers import at_least, names_of, read_seconds
from ompbind.cli.options.rules import import_rule
from ompbind.cli.options.table import find_options, find_variables
from ompbind.cli.options.values import Values, resolve_values
from ompbind.cli.options.variables import make_variable_givens

from ompbind.cli.verbs import PLANNING, VERBS
from ompbind.errors import OptionError
from ompbind.execution.restart_policy import RestartPolicy
from ompbind.planning import rank_variables
from ompbind.planning.request import Request
from ompbind.registry.claims import DIRECTORY_VARIABLE
from tests.toys import run_with

SIZE = Option(names=("-n", "--size"), read=at_least(1), default="1", verbs=("run",), help="Size")
LIBRARIES = Option(
    names=("--library",), read=names_of("a library"), repeatable=True, verbs=("run",), help="Libraries"
)
FORCE = Option(names=("--force",), flag=True, verbs=("run",), help="Force", group="force")
QUIET = Option(names=("--quiet",), flag=True, verbs=("run",), help="Quiet", group="force")
CHECK = Option(names=("--check",), bare="", verbs=("run",), help="Check")
TIME = Option(names=("--time",), bare="", number=True, verbs=("run",), help="Time")
TOYS = (SIZE, LIBRARIES, FORCE, QUIET, CHECK, TIME)
BY_KEY = {option.key: option for option in TOYS}
LEVELS = dict(zip("sufpvc", list(Precedence)[1:], strict=True))


def make_given(text):
    """Read "level:key=value", "level:key" (a flag) or "level:no-key" (a reset)."""
    level, _, rest = text.partition(":")
    key, equals, value = rest.partition("=")
    source = Source(level=LEVELS[level], name=text)
    if key.startswith("no-"):
        return Given(option=BY_KEY[key[3:]], value=None, source=source)
    return Given(option=BY_KEY[key], value=value if equals else True, source=source)


@pytest.mark.parametrize(
    ("givens", "expected", "sources"),
    [
        ([], {"size": 1, "library": (), "force": False, "check": None}, {"size": [""]}),
        (["v:size=2", "c:size=4"], {"size": 4}, {"size": ["c:size=4"]}),
        (["v:size=x", "c:size=4"], {"size": 4}, {}),
        (["f:size=2", "c:no-size"], {"size": 1}, {"size": ["c:no-size"]}),
        (["c:no-size", "c:size=3"], {"size": 3}, {}),
        (["f:library=a", "v:library=b,c", "c:library=d"], {"library": ("a", "b", "c", "d")},
         {"library": ["f:library=a", "v:library=b,c", "c:library=d"]}),
        (["f:library=a", "v:no-library", "c:library=d"], {"library": ("d",)}, {"library": ["c:library=d"]}),
        (["f:library=a", "c:no-library"], {"library": ()}, {"library": ["c:no-library"]}),
        (["v:force", "c:no-quiet"], {"force": False, "quiet": False}, {}),
        (["v:force", "c:no-quiet", "c:force"], {"force": True}, {}),
        (["f:check", "c:check=strict"], {"check": "strict"}, {}),
    ],
)  # fmt: skip
def test_values(givens, expected, sources):
    values = Values("run", TOYS)
    resolve_values(values, map(make_given, givens))
    assert {name: values[name] for name in expected} == expected
    assert {name: [source.name for source in values.sources(name)] for name in sources} == sources


@pytest.mark.parametrize(
    ("givens", "message"),
    [
        (["c:size=x"], "-n/--size: 'x' is not a whole number of at least 1"),
        (["v:size=0"], "v:size=0: '0' is not a whole number of at least 1"),
        (["f:library="], "f:library=: the name of a library is missing"),
    ],
)
def test_a_wrong_value_names_its_source(givens, message):
    with pytest.raises(OptionError) as error:
        resolve_values(Values("run", TOYS), map(make_given, givens))
    assert (error.value.message, error.value.hint) == (message, "see 'ompbind run --help'")
    lenient = Values("run", TOYS)
    resolve_values(lenient, map(make_given, givens), lenient=True)
    assert not any(map(lenient.is_given, lenient))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"OMPBIND_SIZE": ""}, []),
        ({"OMPBIND_SIZE": "4"}, [("size", "4")]),
        ({"OMPBIND_LIBRARY": "a 'b c'"}, [("library", "a"), ("library", "b c")]),
        ({"OMPBIND_FORCE": "yes", "OMPBIND_QUIET": "0"}, [("force", True), ("quiet", False)]),
        ({"OMPBIND_CHECK": "1"}, [("check", "")]),
        ({"OMPBIND_TIME": "1"}, [("time", "1")]),
        ({"OMPBIND_TIME": "on"}, [("time", "")]),
        ({"OMPBIND_CHECK": "off"}, [("check", None)]),
        ({"OMPBIND_CHECK": "strict"}, [("check", "strict")]),
    ],
)
def test_variables(env, expected):
    assert [(given.option.name, given.value) for given in make_variable_givens(TOYS, env)] == expected


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"OMPBIND_FORCE": "maybe"}, "OMPBIND_FORCE: 'maybe' is not 1 (yes) or 0 (no)"),
        ({"OMPBIND_LIBRARY": "'a"}, "OMPBIND_LIBRARY: No closing quotation"),
    ],
)
def test_wrong_variables(env, message):
    with pytest.raises(OptionError) as error:
        list(make_variable_givens(TOYS, env))
    assert error.value.message == message


@pytest.mark.parametrize("verb", VERBS)
def test_names_are_unique_and_defaults_can_be_read(verb):
    options = find_options(verb)
    names = [name for option in options for name in (*option.names, option.reset_name)]
    assert len(names) == len(set(names))
    for option in options:
        assert option.default is None or option.default_value is not NotImplemented
        assert not option.flag or option.default is option.bare is None


def test_variables_of_options_and_of_ranks_are_disjoint():
    carried = {value for name, value in vars(rank_variables).items() if name.startswith("OMPBIND_")}
    assert len(carried) > 4
    options = {option.variable for verb in PLANNING for option in find_options(verb)} - {""}
    assert set(find_variables()) <= options
    assert not options & (carried | {DIRECTORY_VARIABLE})


def test_options_of_a_request_have_its_defaults():
    """The fields of a request are filled from the options of the same names."""
    plain, values = Request(), Values("run", find_options("run"))
    shared = [name for name in Request.fields if name in values]
    assert len(shared) > 12
    assert {name: values[name] for name in shared} == {name: getattr(plain, name) for name in shared}


def test_options_have_variables_unless_they_are_for_one_run():
    planning = {
        option.name
        for verb in ("run", "exec", "plan")
        for option in find_options(verb)
        if not option.variable
    }
    assert planning == {"run_id", "rank", "size", "local_rank", "local_size"}
    bench = {option.name for option in find_options("bench") if not option.variable} - planning
    assert bench == {"seed", "format", "results", "show", "fail_above", "export", "save_preset"}


TOY = """
from ompbind.cli.options import table
from ompbind.cli.options.option import RANKS, Option
from ompbind.cli.options.readers import one_of
words = ("calm", "loud")
table.LAUNCH_OPTIONS += (Option(names=("--mood",), section=RANKS, verbs=("run", "plan"), read=one_of(words),
    words=words, default="calm", help="Mood of the ranks: {words}"),)
import ompbind.cli.run, ompbind.cli.request
ompbind.cli.run._run = lambda values: print("mood", values["mood"], values.source("mood").name) or None
"""


def test_a_row_is_found_everywhere(tmp_path):
    """In help, errors, values, variables, files, resets, completion and the reference."""
    ran = ("--", "true")
    assert "--mood calm|loud Mood of the ranks: calm (default), loud" in run_with(TOY, "run", "--help-all")
    assert "mood calm" in run_with(TOY, "run", *ran)
    assert "mood loud --mood" in run_with(TOY, "run", "--mood", "loud", *ran)
    assert "mood loud OMPBIND_MOOD" in run_with(TOY, "run", *ran, OMPBIND_MOOD="loud")
    assert "mood calm --no-mood" in run_with(TOY, "run", "--no-mood", *ran, OMPBIND_MOOD="loud")
    assert "--mood: 'x' is not calm or loud" in run_with(TOY, "run", "--mood", "x", *ran)
    assert "OMPBIND_MOOD: 'x' is not calm" in run_with(TOY, "run", *ran, OMPBIND_MOOD="x")
    file = tmp_path / "x.toml"
    file.write_text('[defaults]\nmood = "loud"\n[preset.calm]\nno-mood = true\n[preset.wrong]\nmod = "x"\n')
    assert f"{file}:6: preset.wrong.mod is unknown" in run_with(TOY, "config", "--config", str(file))
    assert "did you mean mood?" in run_with(TOY, "run", "--config", str(file), *ran)
    file.write_text("".join(file.read_text().partition("[preset.wrong]")[:1]))
    assert f"mood loud {file}:2: defaults.mood" in run_with(TOY, "run", "--config", str(file), *ran)
    named = ("--config", str(file), "--preset", "calm")
    assert f"mood calm {file}:4: preset.calm.no-mood" in run_with(TOY, "run", *named, *ran)
    assert "mood calm named file:4: preset.calm.no-mood" in run_with(TOY, "config", *named)
    completion = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_CWORD": "3"}
    assert "plain,loud" in run_with(TOY, "run", COMP_WORDS="ompbind run --mood lo", **completion)
    assert "plain,--no-mood" in run_with(
        TOY, "run", **{**completion, "COMP_CWORD": "2"}, COMP_WORDS="ompbind run --no-mo"
    )
    shown = run_with(
        f"{TOY}\nfrom docs.generate import render_reference\nprint(render_reference())", "--version"
    )
    row = "| `--mood calm\\|loud` | Mood of the ranks: calm (default), loud | calm | OMPBIND_MOOD |"
    assert shown.count(row) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("5m", 300), ("1.5h", 5400), ("0", 0), (".5", 0.5), ("1d", 86400), ("1h30m", 5400),
     ("1m30s", 90), ("1m1.5s", 61.5), ("1d2h3m4s", 93784), ("1.5h30m", 7200)],
)  # fmt: skip
def test_times(text, seconds):
    assert read_seconds(text) == seconds


(ON_FAILURE,) = (option for option in find_options("run") if option.name == "on_failure")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("stop", "stop"),
        ("continue", "continue"),
        ("restart", RestartPolicy()),
        ("restart:1", RestartPolicy(limit=1)),
        ("restart:250", RestartPolicy(limit=250)),
    ],
)
def test_actions_on_failure(text, value):
    assert ON_FAILURE.read(text) == value


@pytest.mark.parametrize(
    "text", ["", "restart:", "restart:0", "restart:-1", "restart:N", "restarts", "stop:1"]
)
def test_wrong_actions_on_failure(text):
    with pytest.raises(OptionError) as caught:
        ON_FAILURE.read(text)
    assert ("restart:N" in caught.value.hint) == text.startswith("restart:")


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


def test_every_rule_and_every_excluded_option_exist():
    for verb in VERBS:
        options = find_options(verb)
        assert all(callable(import_rule(option.rule)) for option in options if option.rule)
        excluded = {name for option in options for name in option.excludes}
        assert excluded <= {option.name for option in options}
