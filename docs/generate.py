"""Write docs/reference.md and the man page from the program, and parts of other pages; tests compare them."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ompbind import __version__
from ompbind.cli import PLANNING, VERBS
from ompbind.cli.main import load_verb
from ompbind.cli.option import Option
from ompbind.cli.verb import METAVARS, SHORT_EXAMPLES, Verb

sys.path.insert(0, str(Path(__file__).parent))  # tests load this file by its path
from man_page import MAN_PAGE, render_man_page

DOCS = Path(__file__).parent
REFERENCE = DOCS / "reference.md"
CITATION = DOCS.parent / "CITATION.cff"
CHANGELOG = DOCS.parent / "CHANGELOG.md"
PICTURE = DOCS / "pictures/plan.svg"
PICTURE_COMMAND = "plan -n 4 --devices gpu --topology sample:four-gpus --format svg"
"""The picture of README, and the command that draws it."""

EXAMPLE = re.compile(r"```(?:python\n#|c\n//) (examples/\w+\.\w+)\n.*?```", re.S)
"""A block that shows a file of docs/examples/: its first line is a comment with the name."""

HEAD = """\
# Reference of the command line

This page lists the commands, and then [all options](#choose-cpus). `ompbind help --mask` shows one option,
`ompbind COMMAND --help` the options of a command. `run`, `exec`,
`plan`, `bench`, `rebind` and `config` have `--help-all`.

- Options of `run`, `exec`, `plan` and `bench` can also be variables: `OMPBIND_` and the name in capitals,
  with `_` for `-`, such as `OMPBIND_RESERVE_TOTAL`. A flag is `1` or `0`. An option that can be repeated
  takes several values, quoted as in a shell. There is no variable for {without}.
- Each option has a form `--no-NAME`, which resets it to its default. `--no-share`, `--no-avoid` and
  `--no-exclusive` reset all three, which are one option with three names.
- The command line overrides variables. Variables override presets and
  [configuration files](configuration.md), whose keys are the names of options without `--`.
- If an option with one value is given twice, the last value counts, and `-v` shows which value is not used.
- An option that can be repeated adds to the values of its variable; `--no-NAME` resets all of them.
"""


def render_reference() -> str:
    """Return the text of the page: commands with the names of their options, then each option once."""
    verbs = [load_verb(name) for name in VERBS]
    sections: dict[str, list[Option]] = {}
    for option in dict.fromkeys(option for verb in verbs for option in verb.options):
        sections.setdefault(option.section, []).append(option)
    planning = [
        option for options in sections.values() for option in options if {*PLANNING} & {*option.verbs}
    ]
    have = {option.long_name for option in planning if option.variable}
    without = dict.fromkeys(f"`{option.long_name}`" for option in planning if option.long_name not in have)
    lines = (*(line for verb in verbs for line in _verb_lines(verb)), *_option_lines(sections))
    return "\n".join((HEAD.format(without=", ".join(without)), *lines))


def render_page(text: str) -> str:
    """Return the text of a page with the present text of each example in it."""
    return EXAMPLE.sub(lambda block: _render_example(block[1]), text)


def _render_example(name: str) -> str:
    comment = "c\n//" if name.endswith(".c") else "python\n#"
    return f"```{comment} {name}\n{(DOCS / name).read_text()}```"


def _verb_lines(verb: Verb) -> Iterator[str]:
    yield f"## ompbind {verb.name}\n"
    dashes = " --" if verb.words == "command" else ""
    yield f"    ompbind {verb.name} [OPTIONS]{dashes} {METAVARS.get(verb.words, '')}".rstrip() + "\n"
    yield f"{' '.join(f'{verb.help} {verb.details}'.split())}\n"
    yield "```sh"
    for title, line in verb.examples[:SHORT_EXAMPLES]:
        yield f"# {title}"
        yield line
    yield "```\n"


def _option_lines(sections: dict[str, list[Option]]) -> Iterator[str]:
    for section, options in sections.items():
        yield f"## {section}\n"
        yield "| option | meaning | commands |"
        yield "|---|---|---|"
        yield from map(_row, options)
        yield ""


def _row(option: Option) -> str:
    cells = (f"`{option.render_names()}`", option.render_help(), ", ".join(option.verbs))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def render_citation(text: str, changelog: str) -> str:
    """Return the text of CITATION.cff with the version, and the day of its release if it has one."""
    day = re.search(rf"^## \[{re.escape(__version__)}\] - (\S+)", changelog, re.M)
    lines = f"version: {__version__}\n" + (f"date-released: {day[1]}\n" if day else "")
    return re.sub(r"(?m)^version: .*\n(date-released: .*\n)?", lines, text)


def render_picture() -> str:
    """Return the picture of README."""
    command = (sys.executable, "-m", "ompbind", *PICTURE_COMMAND.split())
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


if __name__ == "__main__":
    CITATION.write_text(render_citation(CITATION.read_text(), CHANGELOG.read_text()))
    PICTURE.write_text(render_picture())
    REFERENCE.write_text(render_reference())
    MAN_PAGE.write_text(render_man_page())
    sys.stdout.write(f"wrote {REFERENCE}\nwrote {MAN_PAGE}\n")
    for page in DOCS.glob("*.md"):
        page.write_text(render_page(page.read_text()))
