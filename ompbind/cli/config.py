"""`ompbind config`: the value of each option, and where it comes from."""

from collections.abc import Iterator

from ompbind.cli.console import write_stdout
from ompbind.cli.description import Description
from ompbind.cli.options.option import Option, Source
from ompbind.cli.options.running import ALL_VALUES
from ompbind.cli.options.values import Values
from ompbind.cli.terminal import read_screen
from ompbind.cli.verb import Verb
from ompbind.planning.secret_values import mask_word
from ompbind.report.configuration import (
    OptionValue,
    ValueSource,
    render_configuration,
    render_configuration_json,
)

EXAMPLES = (
    ("Each option and its source", "ompbind config"),
    ("What a run would use", "ompbind config --preset serve -n 4"),
    ("The same as JSON", "ompbind config --preset serve -n 4 --format json"),
)

HELP = """Show which configuration files are read, and the value and the source of each option that 'run'
would use with the same options. Nothing is started.
"""

DETAILS = """Options are also read from ompbind.toml in the working directory or above it, from
~/.config/ompbind/ompbind.toml and from /etc/ompbind.toml.
"""


def _show(values: Values) -> int:
    """Show the value of each option and its source."""
    options = [_describe(option, values) for option in values.options.values() if "run" in option.verbs]
    if values["format"] == "json":
        write_stdout(render_configuration_json(options, values.configuration))
    else:
        write_stdout(render_configuration(options, values.configuration, read_screen()))
    return 0


def _describe(option: Option, values: Values) -> OptionValue:
    shows_secrets = values["report_env"] == ALL_VALUES
    sources = tuple(_list_sources(option, values, shows_secrets=shows_secrets))
    return OptionValue(name=option.key, sources=sources, is_list=option.repeatable)


def _list_sources(option: Option, values: Values, *, shows_secrets: bool) -> Iterator[ValueSource]:
    """Yield each occurrence that makes the value of an option, or its default."""
    for given in values.givens(option.name):
        text = given.value if given.value is not None else _default(option)
        if isinstance(text, str) and not shows_secrets:
            text = mask_word(text)
        yield _make_source(text, given.source)
    if not values.givens(option.name):
        yield _make_source(_default(option), values.source(option.name))


def _make_source(value: str | bool | None, source: Source) -> ValueSource:
    return ValueSource(value=value, level=source.level.name.lower(), name=source.name)


def _default(option: Option) -> str | bool | None:
    return False if option.flag else option.default


VERB = Verb(
    name="config",
    run=_show,
    describe=lambda: Description(
        help=HELP,
        summary="Show the value of each option, and where it comes from.",
        examples=EXAMPLES,
        details=DETAILS,
    ),
    words="optional command",
    shows_replaced=True,
)
