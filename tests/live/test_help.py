"""The short help of verbs with many options fits on a screen; --help-all shows every option."""

import sys
from pathlib import Path

import pytest

from ompbind.cli import VERBS
from ompbind.cli.main import cli, load_verb
from ompbind.cli.options import find_options
from ompbind.cli.verb import SHORT_EXAMPLES

SHORT = ("run", "plan", "exec", "bench", "rebind", "config")
"""The verbs with a short help."""


@pytest.fixture
def read_help(monkeypatch, capsys):
    """Return what the command line prints on a terminal of some width."""

    def read(*words, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert cli.main(words, prog_name="ompbind", standalone_mode=False) == 0
        return capsys.readouterr().out

    return read


def lines_of(option, text):
    """The lines of a help text that begin with the names of an option; `[=VALUE]` follows without a space."""
    value = option.value_name if option.value_name.startswith("[=") else ""
    start = f"  {', '.join(option.names)}{value} "
    return [line for line in text.splitlines() if f"{line} ".startswith(start)]


@pytest.mark.parametrize("verb", SHORT)
def test_short_help_has_the_everyday_options_and_fits_on_a_screen(read_help, verb):
    text = read_help(verb, "--help")
    lines = text.splitlines()
    assert len(lines) <= 45
    assert lines[-1].startswith(f"All options: 'ompbind {verb} --help-all'. Documentation: docs/")
    names = set()
    for option in find_options(verb):
        assert len(lines_of(option, text)) == option.is_everyday(verb), option.name
        names |= {*option.names} if option.is_everyday(verb) else set()
    shown = [line for _, line in load_verb(verb).examples if line in text]
    assert len(shown) == SHORT_EXAMPLES
    own = " ".join(line.partition(f"ompbind {verb}")[2].partition(" -- ")[0] for line in shown)
    assert {word for word in own.split() if word.startswith("-")} <= names, "examples have shown options"


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("verb", VERBS)
def test_complete_help_has_every_option_with_its_whole_text(read_help, verb, columns):
    text = read_help(verb, "--help-all" if verb in SHORT else "--help", columns=columns)
    shown = "".join(text.split())
    for option in find_options(verb):
        assert len(lines_of(option, text)) == 1, option.name
        assert "".join(option.render_help().split()) in shown, option.name
    assert all(line in text for _, line in load_verb(verb).examples)
    assert max(len(line) for line in text.splitlines() if "ompbind" not in line) <= columns
    assert ("--help-all" in text) == (verb in SHORT)
    page = text.rpartition("Documentation: ")[2].strip()
    assert (Path(__file__).parents[2] / page).is_file()


def test_without_docstrings_the_summary_is_the_help(ompbind):
    done = ompbind("-OO", "-m", "ompbind", "ps", "--help", program=sys.executable)
    assert load_verb("ps").short_help in done.stdout


def test_help_needs_no_command_starts_nothing_and_is_completed(ompbind):
    done = ompbind("run", "-n", "2", "--help-all", "--", "nonsense")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--keep-descendants" in done.stdout
    env = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": "ompbind run --help", "COMP_CWORD": "2"}
    assert "plain,--help-all" in ompbind(env=env).stdout.split()
    assert max(map(len, ompbind("--help", env={"COLUMNS": "200"}).stdout.splitlines())) <= 80
