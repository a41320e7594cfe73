"""Write docs/reference.md from the options of the program; `make docs` runs this, a test compares."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ompbind.cli.click_base import SectionedOption, Verb
from ompbind.cli.main import VERBS, cli

REFERENCE = Path(__file__).with_name("reference.md")

HEAD = """\
# Reference of the command line

`make docs` writes this page from the program. `ompbind COMMAND --help` prints the same options.
`run`, `exec` and `plan` print all options with `--help-all`.

An option with a variable in the last column can also be set in the environment.
The command line takes precedence.
"""


def render_reference() -> str:
    """Return the text of the page."""
    context = click.Context(cli, info_name="ompbind")
    parts = [HEAD]
    for name in VERBS:
        verb = cli.get_command(context, name)
        assert isinstance(verb, Verb)
        parts.append("\n".join(_verb_lines(verb)))
    return "\n".join(parts)


def _verb_lines(verb: Verb) -> Iterator[str]:
    yield f"## ompbind {verb.name}\n"
    arguments = [param.metavar or "CMD..." for param in verb.params if isinstance(param, click.Argument)]
    yield f"    ompbind {' '.join([verb.name or '', verb.options_metavar or '', *arguments])}\n"
    yield f"{' '.join(f'{verb.help or str()} {verb.details}'.split())}\n"
    sections: dict[str, list[click.Option]] = {}
    for param in verb.params:
        if isinstance(param, SectionedOption):
            sections.setdefault(param.section, []).append(param)
    for section, options in sections.items():
        yield f"### {verb.name}: {section}\n"
        yield "| option | meaning | default | variable |"
        yield "|---|---|---|---|"
        yield from map(_row, options)
        yield ""
    yield "### Examples\n"
    yield "```sh"
    for title, line in verb.examples:
        yield f"# {title}"
        yield line
    yield "```\n"


def _row(option: click.Option) -> str:
    meaning, _, default = (option.help or "").partition("[default: ")
    names = f"`{', '.join(option.opts)}{_metavar(option)}`"
    cells = (names, meaning.strip(), default.rstrip("].") or _default(option, meaning), option.envvar or "")
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _default(option: click.Option, meaning: str) -> str:
    """Return the default that click shows or that the help marks: "(default 2)", or "rank (default)"."""
    marked = re.search(r"\(default (\w+)\)", meaning) or re.search(r"(\w+) \(default", meaning)
    if not (marked or option.show_default):
        return ""
    return option.default if isinstance(option.default, str) else marked[1] if marked else ""


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice) and not option.metavar:
        return f" {'|'.join(map(str, option.type.choices))}"
    return f" {option.metavar}" if option.metavar else ""


if __name__ == "__main__":
    REFERENCE.write_text(render_reference())
    sys.stdout.write(f"wrote {REFERENCE}\n")
