"""The text of a configuration file → its defaults and presets, or an error with the line in the file.

A file has a table [defaults] and tables [preset.NAME] and [group.NAME]. Their keys are the long options
without "--"; a pyproject.toml has these tables below [tool.ompbind]. What each key takes follows from the
option.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ompbind.cli.config_files import PYPROJECT, FileContent, FileKind
from ompbind.cli.option import Option
from ompbind.cli.readers import read_group_name
from ompbind.cli.suggestions import find_removed, suggest_value
from ompbind.errors import ConfigurationError, OmpbindError, OptionError, PositionError
from ompbind.record import Record
from ompbind.text import suggest_name

KeyPath = tuple[str, ...]
"""A dotted key below the table for ompbind."""

DEFAULTS, PRESET, GROUP = "defaults", "preset", "group"
INHERITS, MATCH = "inherits", "match"
COMMAND, AFTER = "command", "after"
ENV = "env"
HOSTNAME, CPUS = "hostname", "cpus"
RESET = "no-"
"""What is put before a key to reset its option."""

DOTS_LIMIT = 100
"""Dots in a line of a file: the parser needs memory for the square of the parts of a dotted key."""

SHOWN = 60
"""Characters of a value in messages; keys and messages of the parser may be twice as long."""


class Setting(Record):
    """One occurrence of an option in a file; `value` is as in `Given`, `place` is `FILE:LINE: KEY`."""

    option: Option
    value: str | bool | None
    key: str
    place: str


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


class GroupTable(Record):
    """A group of ranks: its command, its settings, which may extend a preset, and where it is in the file.

    `after` is the group that must be ready before it starts, "" for the group before it.
    """

    name: str
    command: tuple[str, ...]
    preset: Preset
    after: str
    place: str


class ConfigurationFile(Record):
    """What a configuration file says; `settings` are its defaults."""

    kind: FileKind
    path: str
    settings: tuple[Setting, ...] = ()
    presets: tuple[Preset, ...] = ()
    groups: tuple[GroupTable, ...] = ()


class Document(Record):
    """A parsed file: its text, the table for ompbind and its path, and the options that it can contain."""

    path: str
    text: str
    root: KeyPath
    values: Mapping[str, Any]
    keys: Mapping[str, Option]

    def place(self, path: KeyPath) -> str:
        """Return where a key below the root is: the file and, where it is found, the line."""
        line = _find_line(self.text, self.root + path)
        return f"{self.path}:{line}" if line else self.path

    def render_table(self, path: KeyPath) -> str:
        """Return the header of a table below the root."""
        return f"[{render_key(self.root + path)}]"

    def error(self, path: KeyPath, message: str, hint: str = "") -> ConfigurationError:
        """Return an error about a key below the root; its message continues a sentence about the key."""
        return ConfigurationError(f"{self.place(path)}: {render_key(path)} {message}", hint=hint)


def _find_line(text: str, path: KeyPath) -> int:
    """Return the line of a table or a key, or of the innermost one that contains it; 0 if unknown."""
    table: KeyPath = ()
    found = depth = 0
    for number, line in enumerate(text.split("\n"), 1):
        here: KeyPath = ()
        if header := re.match(r"\s*\[+([^\]]*)\]", line):
            here = table = _split_key(header[1])
        elif key := re.match(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=", line):
            here = (*table, *_split_key(key[1]))
        if len(here) > depth and here == path[: len(here)]:
            found, depth = number, len(here)
    return found


_PART = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
"""A part of a dotted key."""


def _split_key(text: str) -> KeyPath:
    """Return the parts of a dotted key without their quotes."""
    return tuple(part.strip("\"'") for part in re.findall(_PART, text))


def parse_document(content: FileContent, keys: Mapping[str, Option]) -> Document:
    """Parse a file; raises ConfigurationError for invalid TOML."""
    text = _decode(content)
    values = _load(content.path, text)
    root = ("tool", "ompbind") if content.path.rpartition("/")[2] == PYPROJECT else ()
    for name in root:
        values = values.get(name, {})
        if not isinstance(values, dict):
            raise ConfigurationError(f"{content.path}: {'.'.join(root)} is not a table")
    if root and content.kind is FileKind.NAMED and not values:
        hint = "add it, or omit --config"
        raise ConfigurationError(f"{content.path}: there is no table [{'.'.join(root)}]", hint=hint)
    return Document(path=content.path, text=text, root=root, values=values, keys=keys)


def _decode(content: FileContent) -> str:
    """Return the text of a file; raises ConfigurationError for text that is not UTF-8, or too many dots."""
    try:
        text = content.data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.data.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{content.path}:{line}: the text is not UTF-8") from error
    for number, line_text in enumerate(text.split("\n"), 1):
        if line_text.count(".") > DOTS_LIMIT:
            message = f"{content.path}:{number}: more than {DOTS_LIMIT} dots in a line"
            raise ConfigurationError(message, hint="write the values in several lines")
    return text


def _load(path: str, text: str) -> dict[str, Any]:
    """Parse TOML; raises ConfigurationError with the line of the error."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigurationError(f"{path}: too many brackets inside each other") from error
    except ValueError as error:  # TOMLDecodeError, and numbers that are too long
        message = str(error)
        found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
        line = (found[1] or text.rstrip("\n").count("\n") + 1) if found else ""
        message = message[: found.start()] if found else message
        where = f"{path}:{line}" if line else path
        raise ConfigurationError(f"{where}: {_clip(message[:1].lower() + message[1:])}") from error


def render_key(path: KeyPath) -> str:
    """Return a dotted key as TOML writes it, cut if it is long."""
    return _clip(".".join(part if re.fullmatch(r"[\w-]+", part) else repr(part) for part in path))


def _clip(text: str) -> str:
    return text if len(text) <= 2 * SHOWN else f"{text[: 2 * SHOWN]}..."


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
        groups=tuple(_read_group(document, *item) for item in values.get(GROUP, {}).items()),
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
        if name not in (DEFAULTS, PRESET, GROUP):
            is_option = name.removeprefix(RESET) in document.keys
            below = f"write it below {document.render_table((DEFAULTS,))}"
            hint = below if is_option else _suggest(name, (DEFAULTS, PRESET, GROUP))
            raise document.error((name,), "is unknown here", hint)
    tables: dict[KeyPath, Any] = {(name,): value for name, value in values.items()}
    for kind in (PRESET, GROUP):
        named = values.get(kind, {})
        if isinstance(named, dict):
            tables |= {(kind, name): value for name, value in named.items()}
    for path, value in tables.items():
        if not isinstance(value, dict):
            shown = document.render_table((*path, "NAME") if path in ((PRESET,), (GROUP,)) else path)
            raise document.error(path, "is not a table", f"write {shown} on a line, and its keys below")


def _read_group(document: Document, name: str, values: Mapping[str, Any]) -> GroupTable:
    """Return a group; raises ConfigurationError without a command, and for options of the whole run."""
    path = (GROUP, name)
    try:
        read_group_name(name)
    except OptionError as error:
        raise document.error(path, f"has a wrong name: {error.message}", error.hint) from None
    command, after = values.get(COMMAND), values.get(AFTER, "")
    is_command = isinstance(command, list) and all(isinstance(word, str) for word in command)
    if not (is_command and command and command[0]):
        what = "is missing" if command is None else "is not a list of words"
        raise document.error((*path, COMMAND), what, f'write {COMMAND} = ["python", "serve.py"]')
    if not isinstance(after, str):
        raise document.error((*path, AFTER), f"is {_name_type(after)}, not the name of a group")
    for key in values:
        option = document.keys.get(key.removeprefix(RESET))
        if option and option.whole_run:
            hint = "write it below [defaults] or in a preset, or on the command line"
            raise document.error((*path, key), "is an option of the whole run, not of a group", hint)
    rest = {key: value for key, value in values.items() if key not in (COMMAND, AFTER)}
    preset = _read_preset(document, name, rest, kind=GROUP)
    return GroupTable(
        name=name, command=tuple(command), preset=preset, after=after, place=document.place(path)
    )


def _read_preset(document: Document, name: str, values: Mapping[str, Any], kind: str = PRESET) -> Preset:
    path = (kind, name)
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
        if option and not option.multiple and reset in values:
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
        if removed := find_removed(name.removeprefix(RESET)):
            raise document.error(path, "is the key of an option that was removed", removed)
        special = {PRESET: (INHERITS, MATCH), GROUP: (COMMAND, AFTER, INHERITS)}.get(path[0], ())
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
            message = f"{document.place(path)}: {render_key(path)}: {error.message}"
            if isinstance(error, PositionError):  # the caret shows the wrong part of the value
                error.message = message
                raise
            hint = error.hint or suggest_value(option.names[0], value, option.words)
            raise ConfigurationError(message, hint=hint) from None
    key = render_key(path)
    return Setting(option=option, value=value, key=key, place=f"{document.place(path)}: {key}")


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
    for item in value if isinstance(value, list) and option.multiple else [value]:
        if isinstance(item, bool) and option.is_flag:
            yield path, item or None
        elif isinstance(item, bool) and option.bare is not None:
            yield path, option.bare if item else None
        elif isinstance(item, str) and not option.is_flag:
            yield path, item
        elif type(item) in (int, float) and option.number:
            yield path, str(item)
        else:
            raise document.error(path, f"is {_name_type(item)}, not {_describe(option)}")


def _describe(option: Option) -> str:
    """Return what a key takes."""
    if option.is_flag:
        return "true or false"
    also = {
        "a number": option.number,
        "a list of strings": option.multiple,
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
    near = suggest_name(name.lower().replace("_", "-"), known)
    return f"did you mean {reset}{near}?" if near else "'ompbind config --no-config' lists the keys"
