"""The text of a configuration file → its defaults and presets, or an error with the position in the file.

A file has a table [defaults] and tables [preset.NAME]. Their keys are the long options without "--"; a
pyproject.toml has these tables below [tool.ompbind]. What each key takes follows from the option.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ompbind.cli.configuration.document import SHOWN, Document, parse_document, render_key
from ompbind.cli.configuration.key_positions import KeyPath
from ompbind.cli.configuration.read_files import FileContent, FileKind
from ompbind.cli.options.option import Option
from ompbind.errors import OmpbindError
from ompbind.record import Record

DEFAULTS, PRESET = "defaults", "preset"
INHERITS, MATCH = "inherits", "match"
ENV = "env"
HOSTNAME, CPUS = "hostname", "cpus"
RESET = "no-"
"""What is put before a key to reset its option."""


class Setting(Record):
    """One occurrence of an option in a file; `value` is as in `Given`. `line` is 0 if it is unknown."""

    option: Option
    value: str | bool | None
    key: str
    line: int


class Preset(Record):
    """A named group of settings, the preset that it extends ("" for none), and which machines select it."""

    name: str
    settings: tuple[Setting, ...]
    inherits: str = ""
    hostname: str = ""
    cpus: int = 0

    @property
    def selects_machines(self) -> bool:
        """Whether the preset has conditions on the machine."""
        return bool(self.hostname or self.cpus)


class ConfigurationFile(Record):
    """What a configuration file says; `settings` are its defaults."""

    kind: FileKind
    path: str
    settings: tuple[Setting, ...] = ()
    presets: tuple[Preset, ...] = ()


def parse_file(content: FileContent, keys: Mapping[str, Option]) -> ConfigurationFile:
    """Return what a file says; raises ConfigurationError for invalid TOML, unknown keys and wrong types."""
    document = parse_document(content, keys)
    _check_tables(document)
    values = document.values
    return ConfigurationFile(
        kind=content.kind,
        path=content.path,
        settings=_read_settings(document, (DEFAULTS,), values.get(DEFAULTS, {})),
        presets=tuple(_read_preset(document, *item) for item in values.get(PRESET, {}).items()),
    )


def parse_preset_names(content: FileContent) -> tuple[str, ...]:
    """Return the names of the presets of a file; raises ConfigurationError as `parse_file`."""
    document = parse_document(content, {})
    _check_tables(document)
    return tuple(document.values.get(PRESET, {}))


def _check_tables(document: Document) -> None:
    """Raise ConfigurationError for unknown keys at the top, and for values that should be tables."""
    values = document.values
    for name in values:
        if name not in (DEFAULTS, PRESET):
            is_option = name.removeprefix(RESET) in document.keys
            below = f"write it below {document.render_table((DEFAULTS,))}"
            hint = below if is_option else _suggest(name, (DEFAULTS, PRESET))
            raise document.error((name,), "is unknown here", hint)
    presets = values.get(PRESET, {})
    tables: dict[KeyPath, Any] = {(name,): value for name, value in values.items()}
    if isinstance(presets, dict):
        tables |= {(PRESET, name): value for name, value in presets.items()}
    for path, value in tables.items():
        if not isinstance(value, dict):
            shown = document.render_table((PRESET, "NAME") if path == (PRESET,) else path)
            raise document.error(path, "is not a table", f"write {shown} on a line, and its keys below")


def _read_preset(document: Document, name: str, values: Mapping[str, Any]) -> Preset:
    path = (PRESET, name)
    if not name.strip() or not name.isprintable():
        raise document.error(path, "has no name that can be used", "use letters, digits, - and _")
    inherits = values.get(INHERITS, "")
    if not isinstance(inherits, str):
        raise document.error((*path, INHERITS), f"is {_name_type(inherits)}, not the name of a preset")
    settings = {key: value for key, value in values.items() if key not in (INHERITS, MATCH)}
    return Preset(
        name=name,
        inherits=inherits,
        settings=_read_settings(document, path, settings),
        **_read_match(document, (*path, MATCH), values.get(MATCH)),
    )


def _read_match(document: Document, path: KeyPath, value: Any) -> dict[str, Any]:
    """Return the conditions of a preset; raises ConfigurationError for unknown or wrong conditions."""
    if value is None:
        return {}
    hint = f'for example {MATCH} = {{ {HOSTNAME} = "node*", {CPUS} = 64 }}'
    if not isinstance(value, dict) or not value:
        raise document.error(path, "is not a table with conditions", hint)
    for name, condition in value.items():
        if name not in (HOSTNAME, CPUS):
            raise document.error((*path, name), "is unknown", _suggest(name, (HOSTNAME, CPUS)))
        is_text = isinstance(condition, str) and bool(condition)
        is_number = type(condition) is int and condition > 0
        if not (is_text if name == HOSTNAME else is_number):
            raise document.error((*path, name), f"is {_render_value(condition)}", hint)
    return value


def _read_settings(document: Document, path: KeyPath, values: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return the settings of a table: what is reset comes first, as the order of keys has no meaning."""
    ordered = sorted(values.items(), key=lambda item: not _is_reset(document, item[0]))
    for name in values:
        option, reset = document.keys.get(name), f"{RESET}{name}"
        if option and not option.repeatable and reset in values:
            raise document.error((*path, name), f"and {reset} contradict each other", "use only one of them")
    return tuple(
        setting for name, value in ordered for setting in _read_setting(document, (*path, name), value)
    )


def _is_reset(document: Document, name: str) -> bool:
    return name not in document.keys and name.removeprefix(RESET) in document.keys


def _read_setting(document: Document, path: KeyPath, value: Any) -> Iterator[Setting]:
    """Yield the occurrences that a key gives to its option; raises ConfigurationError for a wrong value."""
    name = path[-1]
    if _is_reset(document, name):
        if value is not True:
            raise document.error(path, f"is {_render_value(value)}", "write true, or omit it")
        yield _make_setting(document, path, document.keys[name.removeprefix(RESET)], None)
        return
    option = document.keys.get(name)
    if option is None:
        special = (INHERITS, MATCH) if path[0] == PRESET else ()
        reset = RESET if name.startswith(RESET) else ""
        hint = _suggest(name.removeprefix(reset), (*document.keys, *special), reset)
        raise document.error(path, "is unknown", hint)
    for at, item in _read_values(document, path, option, value):
        yield _make_setting(document, at, option, item)


def _make_setting(document: Document, path: KeyPath, option: Option, value: str | bool | None) -> Setting:
    if isinstance(value, str):
        if "\0" in value:  # no command line and no variable can contain it
            raise document.error(path, "contains a null character")
        try:
            option.read(value)
        except OmpbindError as error:
            from ompbind.cli.suggestions import suggest_value  # late, as below

            hint = error.hint or suggest_value(option.names[0], value, option.words)
            raise document.error(path, error.message, hint, separator=": ") from None
    where = document.find(path)
    return Setting(option=option, value=value, key=render_key(path), line=where.line if where else 0)


def _read_values(
    document: Document, path: KeyPath, option: Option, value: Any
) -> Iterator[tuple[KeyPath, str | bool | None]]:
    """Yield each value of a key as in `Given`, with its path."""
    if isinstance(value, dict) and option.key == ENV:
        for name, text in value.items():
            if "=" in name:
                raise document.error((*path, name), "is not the name of a variable")
            if not isinstance(text, str):
                raise document.error((*path, name), f"is {_name_type(text)}, not a string", 'write "…"')
            yield (*path, name), f"{name}={text}"
        return
    for item in value if isinstance(value, list) and option.repeatable else [value]:
        if isinstance(item, bool) and option.flag:
            yield path, item or None
        elif isinstance(item, bool) and option.bare is not None:
            yield path, option.bare if item else None
        elif isinstance(item, str) and not option.flag:
            yield path, item
        elif type(item) in (int, float) and option.number:
            yield path, str(item)
        else:
            raise document.error(path, f"is {_name_type(item)}, not {_describe(option)}")


def _describe(option: Option) -> str:
    """Return what a key takes."""
    if option.flag:
        return "true or false"
    also = {
        "a number": option.number,
        "a list of strings": option.repeatable,
        "a table": option.key == ENV,
        "true or false": option.bare is not None,
    }
    return " or ".join(("a string", *(what for what, is_taken in also.items() if is_taken)))


def _name_type(value: Any) -> str:
    """Return what a TOML value is, in words."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "a table" if isinstance(value, dict) else "a date or time")


def _render_value(value: Any) -> str:
    """Return a wrong value for a message: itself if it is short."""
    shown = repr(value) if isinstance(value, str | int | float) else ""
    shown = shown.lower() if isinstance(value, bool) else shown
    return shown if 0 < len(shown) <= SHOWN else _name_type(value)


def _suggest(name: str, known: Collection[str], reset: str = "") -> str:
    """Return a hint with the known name, after `reset`, that an unknown name probably means."""
    from ompbind.text import suggest_name  # late: most files have no unknown key

    near = suggest_name(name.lower().replace("_", "-"), known)
    return f"did you mean {reset}{near}?" if near else "'ompbind config --no-config' lists the keys"
