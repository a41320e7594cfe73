"""`ompbind config`: the value of each option, and where it comes from."""

from collections.abc import Iterator

import click

from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.option import Given, Option, Sources, ValueLevel, VerbContext
from ompbind.cli.verb import Verb
from ompbind.planning.rank_variables import mask_word
from ompbind.report.configuration import (
    OptionValue,
    ValueSource,
    render_configuration,
    render_configuration_json,
)

EXAMPLES = (
    ("Each option and its source", "ompbind config"),
    ("What a run would use", "ompbind config -n 4 --bind core"),
    ("A variable as a source", "OMPBIND_BIND=core ompbind config"),
    ("With a preset", "ompbind config --preset serve -n 4"),
    ("The same as JSON", "ompbind config --preset serve -n 4 --format json"),
)

HELP = """Show which configuration files are read, and the value and the source of each option that 'run'
would use with the same options. Nothing is started.
"""

DETAILS = """Options are also read from ompbind.toml in the working directory, and from
~/.config/ompbind/ompbind.toml.
"""


def config(ctx: click.Context) -> int:
    """Show the value of each option and its source."""
    assert isinstance(ctx, VerbContext)
    options = [
        OptionValue(
            name=option.key,
            sources=tuple(_list_values(option, ctx.sources)),
            is_list=option.multiple,
        )
        for option in ctx.sources.options.values()
        if "run" in option.verbs
    ]
    if ctx.params["format"] == "json":
        write_stdout(render_configuration_json(options, ctx.configuration))
    else:
        write_stdout(render_configuration(options, ctx.configuration, read_screen()))
    return 0


def _list_values(option: Option, sources: Sources) -> Iterator[ValueSource]:
    """Yield each occurrence that makes the value of an option, or its default."""
    default = False if option.is_flag else option.default_text
    not_given = Given(value=None, level=ValueLevel.DEFAULT, place="")
    for given in sources.effective.get(option.name, [not_given]):
        text = default if given.value is None else given.value
        text = mask_word(text) if isinstance(text, str) else text
        yield ValueSource(value=text, level=given.level.name.lower(), name=given.place)


VERB = Verb(
    "config",
    config,
    help=HELP,
    summary="Show the value of each option, and where it comes from.",
    page="configuration.md",
    examples=EXAMPLES,
    details=DETAILS,
    words="optional command",
    shows_replaced=True,
)
