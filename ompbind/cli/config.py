"""`ompbind config`: the value of each option, and where it comes from."""

import json
from collections.abc import Mapping

from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.option import Given, Option, Sources, ValueLevel, VerbContext
from ompbind.cli.verb import Verb, make_format_option
from ompbind.planning.request import Configuration
from ompbind.report.plan_json import configuration_record
from ompbind.report.text import Column, Screen, render_paragraph, render_table
from ompbind.text import clean_line, mask_text

EXAMPLES = (
    ("Each option and its source", "ompbind config"),
    ("What a run would use", "ompbind config -n 4 --bind core"),
    ("A variable as a source", "OMPBIND_BIND=core ompbind config"),
    ("With a preset", "ompbind config --preset serve -n 4"),
    ("The same as JSON", "ompbind config --preset serve -n 4 --format json"),
)

DETAILS = """Options are also read from ompbind.toml in the working directory, and from
~/.config/ompbind/ompbind.toml.
"""

OPTIONS = (make_format_option("config", "table", "json"),)


def config(ctx: VerbContext) -> int:
    """Show which configuration files are read, and the value and the source of each option that 'run'
    would use with the same options. Nothing is started.
    """
    options = [option for option in ctx.sources.options.values() if "run" in option.verbs]
    values = {option: _list_values(option, ctx.sources) for option in options}
    if ctx.params["format"] == "json":
        write_stdout(_render_json(values, ctx.configuration))
    else:
        write_stdout(_render(values, ctx.configuration, read_screen()))
    return 0


def _list_values(option: Option, sources: Sources) -> list[Given]:
    """Return each occurrence that makes the value of an option, or its default; secret values are masked."""
    default = False if option.is_flag else option.default_text
    found = sources.effective.get(option.name) or [Given(value=None, level=ValueLevel.DEFAULT, place="")]
    shown = ((given, default if given.value is None else given.value) for given in found)
    return [given.replace(value=mask_text(text) if isinstance(text, str) else text) for given, text in shown]


def _render(values: Mapping[Option, list[Given]], configuration: Configuration, screen: Screen) -> str:
    width, rows = screen.text_width, []
    for option, given in ((option, given) for option, found in values.items() for given in found):
        words = {None: "-", "": "yes", True: "yes", False: "no"}
        value = words.get(given.value) or clean_line(str(given.value))
        place = given.place or given.level.name.lower()
        for file in configuration.files:  # they are listed above the table, so their kind is enough
            if place.startswith(f"{file.path}:"):
                place = f"{file.kind} file{place.removeprefix(file.path)}"
        rows.append((option.key, value, clean_line(place)))
    names, shown, places = zip(*rows, strict=True)
    columns = [Column(title="option", cells=names), Column(title="value", cells=shown, grows=True)]
    columns.append(Column(title="source", cells=places, grows=True))
    lines = [render_paragraph(f"{file.kind} file", file.path, width) for file in configuration.files]
    lines += [render_paragraph(f"{file.kind} file", str(file), width) for file in configuration.ignored]
    preset = f"{configuration.preset}, from {configuration.preset_file}" if configuration.preset else "none"
    lines = [*(lines or ["no configuration file"]), render_paragraph("preset", preset, width)]
    return "\n".join([*lines, "", render_table(columns, width)])


def _render_json(values: Mapping[Option, list[Given]], configuration: Configuration) -> str:
    options = []
    for option, found in values.items():
        listed = [given.value for given in found if given.value is not None]
        value: object = listed if option.multiple else found[-1].value
        sources = [{"level": given.level.name.lower(), "name": given.place or None} for given in found]
        options.append({"name": option.key, "value": value, "sources": sources})
    head = {"schema": "ompbind-config/2", "configuration": configuration_record(configuration)}
    return json.dumps({**head, "options": options}, indent=2)


VERB = Verb(
    "config",
    config,
    summary="Show the value of each option, and where it comes from.",
    page="configuration",
    examples=EXAMPLES,
    details=DETAILS,
    words="optional command",
)
