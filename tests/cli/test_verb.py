"""The table of options: everything that follows from a row."""

import sys

from ompbind.cli.options import find_options
from ompbind.planning.request import Request
from tests.live.conftest import one_line, run_program


def test_options_of_a_request_have_its_defaults():
    """A request of the Python interface means the same as a command line without options."""
    plain, defaults = Request(), {option.name: option.default_value for option in find_options("run")}
    shared = [name for name in Request.fields if name in defaults and name != "group"]  # --group reads files
    assert len(shared) > 12
    assert {name: defaults[name] for name in shared} == {name: getattr(plain, name) for name in shared}


TOY = """
from ompbind.cli import options
from ompbind.cli.option import Option
from ompbind.cli import RANKS
from ompbind.cli.readers import one_of
words = ("calm", "loud")
options.LAUNCH_OPTIONS += (Option("--mood", section=RANKS, verbs=("run", "plan"), read=one_of(words),
    words=words, default="calm", help="Mood of the ranks: {words}"),)
from ompbind.cli.run import VERB
VERB.run = lambda ctx: print("mood", ctx.params["mood"], ctx.sources.place("mood"))
"""


def run_with(row, *args, **env):
    """Run ompbind after Python code that adds a row; return its output on one line."""
    script = f"{row}\nfrom ompbind.cli.main import main\nmain({list(args)!r})"
    done = run_program(sys.executable, "-c", script, env=env)
    return one_line(done.stdout + done.stderr)


def test_a_row_is_found_everywhere(tmp_path):
    """In help, errors, values, variables, files, resets, completion and the reference."""
    ran = ("--", "true")
    assert "--mood calm|loud Mood of the ranks: calm (default), loud" in run_with(TOY, "run", "--help-all")
    assert "mood loud OMPBIND_MOOD" in run_with(TOY, "run", *ran, OMPBIND_MOOD="loud")
    assert "mood calm --no-mood" in run_with(TOY, "run", "--no-mood", *ran, OMPBIND_MOOD="loud")
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
    completion["COMP_CWORD"] = "2"
    assert "plain,--no-mood" in run_with(TOY, "run", **completion, COMP_WORDS="ompbind run --no-mo")
    show = "from docs.generate import render_reference\nprint(render_reference())"
    shown = run_with(f"{TOY}\n{show}", "--version")
    row = "Mood of the ranks: calm (default), loud | run, plan |"
    assert shown.count(rf"| `--mood calm\|loud` | {row}") == 1
