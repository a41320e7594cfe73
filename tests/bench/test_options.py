"""The options of bench: their values, wrong values, options without effect, and the settings of a session."""

import shlex
import tomllib

import pytest

from ompbind.bench.records import Metric, Rules
from ompbind.bench.run_candidate import MeasuringSettings
from ompbind.bench.verb import VERB, make_measuring_settings, make_rules, render_preset
from ompbind.errors import OmpbindError
from tests.cli.command_lines import read, read_bench
from tests.tables import rows

WRONG = """
--matters 2                     | --matters: '2' is not a part of 1: write 2% or 0.02
--matters 200%                  | --matters: '200%' is not a part of 1: write 2% or 0.02
--budget 0                      | --budget: the time must be longer than 0
--metric a(                     | --metric: wrong regular expression: missing ), unterminated subpattern
--metric a                      | --metric: the pattern has no group
--ready tcp:0                   | --ready: '0' is not a port
--ready tcp:{rang}              | --ready: unknown placeholder {rang}
--export pdf                    | --export: 'pdf' is not json, csv, markdown or svg
--export svg=                   | --export: the name of a file is missing
--higher                        | --higher has no effect without --metric
--ready up                      | --ready up has no effect without --name
--fail-above 5%                 | --fail-above 5% has no effect without --show
--show --dry-run                | --show and --dry-run contradict each other
--export csv --export json      | --export csv,json writes several formats to standard output
--export csv --format jsonl     | --export csv and --format jsonl write to standard output
--show -n 2                     | --ranks 2 has no effect with --show
--show --vary smt=1             | --vary smt=1 has no effect with --show
--topology x.xml                | --topology: candidates can only run on this machine
--run-id outer                  | --run-id outer: the enclosing run has this name
"""


@pytest.mark.parametrize(("words", "message"), rows(WRONG))
def test_wrong_values_and_options_without_effect(words, message, monkeypatch):
    monkeypatch.setenv("OMPBIND_RUN_ID", "outer")
    with pytest.raises(OmpbindError) as error:
        VERB.run(read("bench", *words.split()))
    assert error.value.message.startswith(message)


def test_options_after_the_first_file_are_not_read_as_files():
    with pytest.raises(OmpbindError, match="--fail-above is after the first file of --show"):
        VERB.run(VERB.make_context("bench", ["--show", "a.jsonl", "--fail-above", "5%"]))


def test_a_found_project_file_varies_no_variable(tmp_path, monkeypatch):
    """The file may come from another user."""
    (tmp_path / ".git").mkdir()
    lines = ["[defaults]", 'smt = "2"', 'metric = "(.*)"']
    (tmp_path / "ompbind.toml").write_text("\n".join([*lines, 'vary = "env=LD_PRELOAD=x"']))
    (tmp_path / "ompbind.toml").chmod(0o644)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    context = read("bench")
    assert [context.params[name] for name in ("smt", "vary")] == [2, ()]
    (warning,) = context.messages
    assert "defaults.metric, defaults.vary have no effect" in warning


def test_the_settings_and_rules_of_a_session():
    default, limited, rated = (
        read_bench(*words)
        for words in (("--seed", "0"), ("--timeout", "0"), ("--metric", "rate: ([0-9.]+)", "--higher"))
    )
    expected = MeasuringSettings(run_id="test", metrics=(Metric(),), timeout_s=None, grace_s=10.0)
    assert make_measuring_settings(default) == make_measuring_settings(limited) == expected
    (metric,) = make_measuring_settings(rated).metrics
    assert (metric.name, metric.higher) == ("rate", True)
    assert make_rules(default) == Rules(same_work=False, matters=0.02, max_rounds=40, seed=0)
    assert make_rules(rated).same_work
    assert len({make_rules(rated).seed for _ in range(5)}) == 5


PRESETS = [
    ("--ranks 2 --smt 2", {"ranks": 2, "smt": 2}), ("--ranks auto", {"ranks": "auto"}),
    ("--mask 0-1|2-3 --strict", {"mask": "0-1|2-3", "strict": True}),
    ("--no-strict --no-threads", {"no-strict": True, "no-threads": True}),
    ("--no-preload --preload tcmalloc --preload a,b", {"no-preload": True, "preload": ["tcmalloc", "a,b"]}),
    ("--env A=1 --env B=x=y", {"env": {"A": "1", "B": "x=y"}}), ("--no-env", {"no-env": True}),
    ("--chdir /tmp/{rank} --fill --wrap 'sh -c \"x\"'",
     {"chdir": "/tmp/{rank}", "fill": True, "wrap": 'sh -c "x"'}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "table"), PRESETS)
def test_the_lines_of_a_preset_have_the_options_of_a_candidate(line, table, tmp_path):
    words, file = shlex.split(line), tmp_path / "a.toml"
    text = render_preset("fast", words)
    assert tomllib.loads(text) == {"preset": {"fast": table}}
    file.write_text(text)
    expected, found = (
        read("run", *options).params for options in (words, ("--config", str(file), "--preset", "fast"))
    )
    assert {name for name in expected if expected[name] != found[name]} <= {"config", "preset"}
