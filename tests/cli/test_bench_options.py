"""The options of bench: their values, wrong values, and options that have no effect together."""

import pytest

from ompbind.cli.bench import VERB
from ompbind.cli.main import load_verb
from ompbind.cli.options import find_options
from ompbind.errors import OmpbindError
from tests.cli.command_lines import read


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ((), "vary", ()),
        (("--vary", "smt=1,2", "--vary", "bind=core"), "vary", (("smt", ("1", "2")), ("bind", ("core",)))),
        ((), "matters", 0.02),
        (("--matters", "5%"), "matters", 0.05),
        (("--matters", "0.1"), "matters", 0.1),
        ((), "max_rounds", 40),
        ((), "budget", None),
        (("--budget", "10m"), "budget", 600.0),
        ((), "ready", ""),
        ((), "load", None),
        ((), "export", ()),
        (("--export", "json", "--export", "svg=a=b.svg"), "export", (("json", ""), ("svg", "a=b.svg"))),
        (("--metric", "a (.*)", "--combine", "mean"), "combine", "mean"),
        (("--metric", "(a)", "--metric", "(b)"), "metric", ("(a)", "(b)")),
        (("--metric", "(a)", "--duration", "2", "--load", "wrk -c '1 2'"), "load", ("wrk", "-c", "1 2")),
        (("--metric", "(a)", "--duration", "2", "--ready", "tcp:{rank+80}"), "ready", "tcp:{rank+80}"),
        ((), "seed", None),
        (("--timeout", "3"), "timeout", 3.0),
        ((), "grace", 10.0),
        ((), "format", "table"),
    ],
)
def test_values(words, name, value):
    assert read("bench", *words).params[name] == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--matters", "2"), "--matters: '2' is not a part of 1: write 2% or 0.02"),
        (("--matters", "200%"), "--matters: '200%' is not a part of 1: write 2% or 0.02"),
        (("--budget", "0"), "--budget: the time must be longer than 0"),
        (("--metric", "a("), "--metric: wrong regular expression: missing ), unterminated subpattern"),
        (("--metric", "a"), "--metric: the pattern has no group"),
        (
            ("--ready", "tcp:0"),
            "--ready: '0' is not a port: write a number from 1 to 65535",
        ),
        (("--ready", "tcp:{rang}"), "--ready: unknown placeholder {rang}"),
        (("--export", "pdf"), "--export: 'pdf' is not json, csv, markdown or svg"),
        (("--export", "svg="), "--export: the name of a file is missing"),
        (("--higher",), "--higher has no effect without --metric"),
        (("--combine", "sum"), "--combine sum has no effect without --metric"),
        (("--duration", "2"), "--duration 2 needs --metric: all runs take the same time"),
        (("--ready", "up"), "--ready up has no effect without --duration"),
        (("--load", "wrk"), "--load wrk has no effect without --duration"),
        (("--fail-above", "5%"), "--fail-above 5% has no effect without --show"),
        (("--show", "--dry-run"), "--show and --dry-run contradict each other"),
        (("--show", "--save-preset", "x"), "--save-preset x has no effect with --show"),
        (
            ("--export", "csv", "--export", "json"),
            "--export csv,json writes several formats to standard output",
        ),
        (
            ("--export", "csv", "--format", "jsonl"),
            "--export csv and --format jsonl write to standard output",
        ),
    ],
)
def test_wrong_values_and_options_without_effect(words, message):
    with pytest.raises(OmpbindError) as error:
        read("bench", *words)
    assert error.value.message.startswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--show", "-n", "2"), "--ranks 2 has no effect with --show"),
        (("--show", "--vary", "smt=1"), "--vary smt=1 has no effect with --show"),
        (("--topology", "x.xml"), "--topology: candidates can only run on this machine"),
    ],
)
def test_options_without_effect_on_any_candidate(words, message):
    with pytest.raises(OmpbindError) as error:
        VERB.run(read("bench", *words))
    assert error.value.message == message


def test_options_after_the_first_file_are_not_read_as_files():
    context = VERB.make_context("bench", ["--show", "a.jsonl", "--fail-above", "5%"])
    with pytest.raises(OmpbindError) as error:
        VERB.run(context)
    assert error.value.message == "--fail-above is after the first file of --show"


def test_a_key_of_a_file_is_for_the_option_of_its_own_verb(tmp_path):
    """Several verbs have --format, each with values of its own."""
    file = tmp_path / "x.toml"
    file.write_text('[defaults]\nformat = "sh"\nmatters = "5%"\n')
    file.chmod(0o644)
    values = read("bench", "--config", str(file)).params
    assert (values["format"], values["matters"]) == ("table", 0.05)
    assert read("plan", "--config", str(file)).params["format"] == "sh"
    assert load_verb("config").make_context("config", ["--config", str(file)]).params["format"] == "table"


def test_a_found_project_file_starts_no_load_generator_and_varies_no_variable(tmp_path, monkeypatch):
    """The file may come from another user."""
    (tmp_path / ".git").mkdir()
    lines = ["[defaults]", 'smt = "2"', 'metric = "(.*)"', 'duration = "1"', 'load = "sh evil"']
    lines.append('vary = "env=LD_PRELOAD=x"')
    (tmp_path / "ompbind.toml").write_text("\n".join(lines))
    (tmp_path / "ompbind.toml").chmod(0o644)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    context = read("bench")
    assert [context.params[name] for name in ("smt", "load", "vary")] == [2, None, ()]
    (warning,) = context.messages
    assert "defaults.load, defaults.vary have no effect in a project file" in warning


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bind=", ("bind=rank", "bind=core", "bind=thread", "bind=exact", "bind=none")),
        ("share=yes,", ("share=yes,yes", "share=yes,no")),
        ("topology=", ()),
        ("no-such=", ()),
    ],
)
def test_values_of_vary_are_completed(text, words):
    (option,) = (option for option in find_options("bench") if option.name == "vary")
    assert option.complete(text) == words
    keys = option.complete("")
    assert {"ranks=", "smt=", "mask="} <= set(keys)
    assert "topology=" not in keys


def test_the_name_of_the_enclosing_run_is_refused(monkeypatch):
    monkeypatch.setenv("OMPBIND_RUN_ID", "outer")
    with pytest.raises(OmpbindError) as error:
        VERB.run(read("bench", "--run-id", "outer"))
    assert error.value.message == "--run-id outer: the enclosing run has this name"
