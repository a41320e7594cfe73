"""The values of options and where they come from, for people (tables) and for programs (JSON)."""

import json
from collections.abc import Sequence

from ompbind.planning.configuration import Configuration
from ompbind.record import Record
from ompbind.report.text import PIPE, Column, Screen, render_paragraph, render_table
from ompbind.text import clean_line

Value = str | bool | None


class ValueSource(Record):
    """A value of an option, None if it has none, and where it comes from: the level and the name there."""

    value: Value
    level: str
    name: str


class OptionValue(Record):
    """An option with its value; a list has a source for each occurrence. `is_list` is True for lists."""

    name: str
    sources: tuple[ValueSource, ...]
    is_list: bool = False


def render_configuration(
    values: Sequence[OptionValue], configuration: Configuration, screen: Screen = PIPE
) -> str:
    """Render the files that were read, the preset, and a table of all options."""
    width = screen.text_width
    rows = [(option.name, source) for option in values for source in option.sources]
    where = [_render_source(source, configuration) for _, source in rows]
    columns = [
        Column(title="option", cells=[name for name, _ in rows]),
        Column(title="value", cells=[_render_value(source.value) for _, source in rows], grows=True),
        Column(title="source", cells=where, grows=True),
    ]
    lines = [render_paragraph(f"{file.kind} file", file.path, width) for file in configuration.files]
    lines += [render_paragraph(f"{file.kind} file", str(file), width) for file in configuration.ignored]
    preset = f"{configuration.preset}, from {configuration.preset_file}" if configuration.preset else "none"
    lines = [*(lines or ["no configuration file"]), render_paragraph("preset", preset, width)]
    return "\n".join([*lines, "", render_table(columns, width)])


def _render_source(source: ValueSource, configuration: Configuration) -> str:
    """Return where a value comes from; files are listed above the table, so their kind is enough."""
    name = source.name or source.level
    for file in configuration.files:
        if name.startswith(f"{file.path}:"):
            name = f"{file.kind} file{name.removeprefix(file.path)}"
    return clean_line(name)


def _render_value(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else clean_line(value) or "yes"


def render_configuration_json(values: Sequence[OptionValue], configuration: Configuration) -> str:
    """Render the same as JSON, schema ompbind-config/2."""
    options = []
    for option in values:
        given = [source.value for source in option.sources if source.value is not None]
        value: object = given if option.is_list else option.sources[-1].value
        sources = [{"level": source.level, "name": source.name or None} for source in option.sources]
        options.append({"name": option.name, "value": value, "sources": sources})
    record = {
        "schema": "ompbind-config/2",
        "configuration": configuration_record(configuration),
        "options": options,
    }
    return json.dumps(record, indent=2)


def configuration_record(configuration: Configuration) -> dict[str, object]:
    """Return the JSON value of the configuration files that were read."""
    return {
        "files": [file.as_dict() for file in configuration.files],
        "ignored": [file.as_dict() for file in configuration.ignored],
        "preset": configuration.preset or None,
        "preset_file": configuration.preset_file or None,
        "digest": configuration.digest or None,
    }
