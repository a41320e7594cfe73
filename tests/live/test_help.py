"""The short help of verbs with many options fits on a screen; --help-all shows every option."""

import pytest

from ompbind.cli.main import cli, load_verb
from ompbind.cli.options import find_options
from ompbind.cli.verb import SHORT_EXAMPLES
from ompbind.cli.verbs import VERBS
from tests.live.conftest import OMPBIND

SHORT = ("run", "plan", "exec", "bench", "config")
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
def test_short_help_fits_on_a_screen(read_help, verb):
    lines = read_help(verb, "--help").splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert lines[-1] == f"'ompbind {verb} --help-all' shows all options."


@pytest.mark.parametrize("verb", SHORT)
def test_short_help_has_the_everyday_options_alone(read_help, verb):
    text = read_help(verb, "--help")
    for option in find_options(verb):
        assert len(lines_of(option, text)) == option.is_everyday(verb), option.name
    examples = load_verb(verb).examples
    assert [line in text for _, line in examples].count(True) == SHORT_EXAMPLES


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("verb", SHORT)
def test_complete_help_has_every_option_and_example(read_help, verb, columns):
    text = read_help(verb, "--help-all", columns=columns)
    for option in find_options(verb):
        assert len(lines_of(option, text)) == 1, option.name
    assert all(line in text for _, line in load_verb(verb).examples)


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(
    "words", [(verb, "--help") for verb in VERBS] + [(verb, "--help-all") for verb in SHORT]
)
def test_nothing_is_cut(read_help, words, columns):
    """The help texts of all shown options are complete at every width."""
    text = read_help(*words, columns=columns)
    shown = "".join(text.split())
    for option in find_options(words[0]):
        if lines_of(option, text):
            assert "".join(option.render_help().split()) in shown, option.name
    assert max(len(line) for line in text.splitlines() if "ompbind" not in line) <= columns


@pytest.mark.parametrize("verb", sorted(set(VERBS) - set(SHORT)))
def test_other_verbs_show_all_options_at_once(read_help, verb):
    text = read_help(verb, "--help")
    assert all(lines_of(option, text) for option in find_options(verb))
    assert "--help-all" not in text


def test_sections_are_equal_in_all_verbs_and_in_one_column(read_help):
    text = read_help("run", "--help-all")
    titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Choose CPUs:",
        "Devices:",
        "Bind threads and memory:",
        "Environment of the ranks:",
        "Configuration files:",
        "Output:",
        "Stop, check and report:",
        "Help:",
        "Examples:",
    ]


@pytest.mark.parametrize("verb", SHORT)
def test_shells_complete_it(ompbind, verb):
    env = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": f"ompbind {verb} --help", "COMP_CWORD": "2"}
    assert "plain,--help-all" in ompbind(env=env).stdout.split()


def test_it_needs_no_command_and_starts_nothing(ompbind):
    done = ompbind("run", "-n", "2", "--help-all", "--", OMPBIND, "nonsense")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--keep-descendants" in done.stdout
