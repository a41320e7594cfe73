"""Writes docs/reference.md from the program itself; `make docs` runs it, a test compares."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ompbind.cli.click_base import SectionedOption, Verb
from ompbind.cli.main import VERBS, cli

REFERENCE = Path(__file__).with_name("reference.md")

HEAD = """\
# Reference of the command line

This page is written by `make docs` from the program; `ompbind VERB --help` says the same.

Options can also be given in the environment where the table names a variable; the command line wins.
"""


def render_reference() -> str:
    """Render the whole page."""
    context = click.Context(cli, info_name="ompbind")
    parts = [HEAD]
    for name in VERBS:
        verb = cli.get_command(context, name)
        assert isinstance(verb, Verb)
        parts.append("\n".join(_verb_lines(verb)))
    return "\n".join(parts)


def _verb_lines(verb: Verb) -> Iterator[str]:
    yield f"## ompbind {verb.name}\n"
    words = [one.metavar or "CMD..." for one in verb.params if isinstance(one, click.Argument)]
    yield f"    ompbind {' '.join([verb.name or '', verb.options_metavar or '', *words])}\n"
    yield f"{' '.join((verb.help or '').split())}\n"
    sections: dict[str, list[click.Option]] = {}
    for param in verb.params:
        if isinstance(param, SectionedOption):
            sections.setdefault(param.section, []).append(param)
    for section, options in sections.items():
        yield f"### {section} of {verb.name}\n"
        yield "| option | meaning | default | variable |"
        yield "|---|---|---|---|"
        yield from map(_row, options)
        yield ""
    yield "### Examples\n"
    yield "```sh"
    for what, line in verb.examples:
        yield f"# {what}"
        yield line
    yield "```\n"


def _row(option: click.Option) -> str:
    meaning, _, told = (option.help or "").partition("[default: ")
    default = told.rstrip("].") or (str(option.default) if option.show_default else "")
    cells = (f"`{', '.join(option.opts)}{_metavar(option)}`", meaning.strip(), default, option.envvar or "")
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice) and not option.metavar:
        return f" {'|'.join(map(str, option.type.choices))}"
    return f" {option.metavar}" if option.metavar else ""


if __name__ == "__main__":
    REFERENCE.write_text(render_reference())
    sys.stdout.write(f"wrote {REFERENCE}\n")
