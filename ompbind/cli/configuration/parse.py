"""The text of a configuration file → its defaults and presets, or an error with the position in the file.

A file has a table [defaults] and tables [preset.NAME]. Their keys are the long options without "--"; a
pyproject.toml has these tables below [tool.ompbind]. What each key takes follows from the option.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from ompbind.cli.configuration.key_positions import KeyPath, KeyPosition, find_positions
from ompbind.cli.configuration.read_files import FileContent, FileKind
from ompbind.cli.configuration.search import PYPROJECT
from ompbind.errors import ConfigurationError
from ompbind.record import Record

DEFAULTS, PRESET = "defaults", "preset"
INHERITS, MATCH = "inherits", "match"
HOSTNAME, CPUS = "hostname", "cpus"
RESET = "no-"
"""What is put before a key to reset its option."""

DOTS_LIMIT = 100
"""Dots in a line of a file: the parser needs memory for the square of the parts of a dotted key."""

_SHOWN = 60  # characters of a name in messages


class FileKey(Record):
    """What a key takes.

    A `flag` is true or false. `number`: TOML numbers are allowed. `bare` is the value for true, None if the
    option needs a value.
    """

    name: str
    flag: bool = False
    number: bool = False
    bare: str | None = None
    repeatable: bool = False


class Setting(Record):
    """One value of an option in a file; `text` is None if the option is reset. `line` is 0 if unknown."""

    name: str
    text: str | None
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


class _Document(Record):
    """A parsed file: its text, the positions of its keys, and the path of the table for ompbind."""

    path: str
    text: str
    root: KeyPath
    positions: Mapping[KeyPath, KeyPosition]
    keys: Mapping[str, FileKey]

    def find(self, path: KeyPath) -> KeyPosition | None:
        """Return the position of a key below the root, or of the value that it is in; None if unknown."""
        full = self.root + path
        return next(
            (found for end in range(len(full), 0, -1) if (found := self.positions.get(full[:end]))), None
        )

    def error(self, path: KeyPath, message: str, hint: str = "") -> ConfigurationError:
        """Return an error about a key below the root."""
        where = self.find(path)
        message = f"{render_key(path)} {message}" if path else message
        if where is None:
            return ConfigurationError(f"{self.path}: {message}", hint=hint)
        text = self.text.split("\n")[where.line - 1]
        return ConfigurationError(
            f"{self.path}:{where.line}: {message}", text=text, span=(where.start, where.stop), hint=hint
        )


def parse_file(content: FileContent, keys: Mapping[str, FileKey]) -> ConfigurationFile:
    """Return what a file says; raises ConfigurationError for invalid TOML, unknown keys and wrong types."""
    text = _decode(content)
    is_project = content.path.rpartition("/")[2] == PYPROJECT
    root = ("tool", "ompbind") if is_project else ()
    values = _load(content.path, text)
    document = _Document(path=content.path, text=text, root=root, positions=find_positions(text), keys=keys)
    for at, name in enumerate(root):
        values = values.get(name, {})
        if not isinstance(values, dict):
            raise document.replace(root=()).error(root[: at + 1], "is not a table")
    _check_tables(document, values)
    return ConfigurationFile(
        kind=content.kind,
        path=content.path,
        settings=_read_settings(document, (DEFAULTS,), values.get(DEFAULTS, {})),
        presets=tuple(_read_preset(document, *item) for item in values.get(PRESET, {}).items()),
    )


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
    """Parse TOML; raises ConfigurationError with the position of the error."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigurationError(f"{path}: too many brackets inside each other") from error
    except ValueError as error:  # TOMLDecodeError, and numbers that are too long
        message, line, column = _split_position(str(error), text)
        message = _clip(f"{message[:1].lower()}{message[1:]}")
        if not line:
            raise ConfigurationError(f"{path}: {message}") from error
        line_text = text.split("\n")[line - 1]
        raise ConfigurationError(
            f"{path}:{line}: {message}", text=line_text, span=(column - 1, column)
        ) from error


def _split_position(message: str, text: str) -> tuple[str, int, int]:
    """Return a message of tomllib without its position, the line and the column; 0 if they are unknown."""
    found = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if not found:
        return message, 0, 0
    if found[1]:
        return message[: found.start()], int(found[1]), int(found[2])
    lines = text.rstrip("\n").split("\n")
    return message[: found.start()], len(lines), len(lines[-1]) + 1


def _check_tables(document: _Document, values: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for unknown keys at the top, and for tables that are values."""
    for name in values:
        if name not in (DEFAULTS, PRESET):
            is_option = name.removeprefix(RESET) in document.keys
            hint = f"write it below [{DEFAULTS}]" if is_option else _suggest(name, (DEFAULTS, PRESET))
            raise document.error((name,), "is unknown here", hint)
    presets = values.get(PRESET, {})
    tables: dict[KeyPath, Any] = {(name,): value for name, value in values.items()}
    if isinstance(presets, dict):
        tables |= {(PRESET, name): value for name, value in presets.items()}
    for path, value in tables.items():
        if not isinstance(value, dict):
            shown = f"[{PRESET}.NAME]" if path == (PRESET,) else f"[{render_key(path)}]"
            raise document.error(path, "is not a table", f"write {shown} on a line, and its keys below")


def _read_preset(document: _Document, name: str, values: Mapping[str, Any]) -> Preset:
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


def _read_match(document: _Document, path: KeyPath, value: Any) -> dict[str, Any]:
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


def _read_settings(document: _Document, path: KeyPath, values: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return the settings of a table: what is reset comes first, as the order of keys has no meaning."""
    ordered = sorted(values.items(), key=lambda item: not _is_reset(document, *item))
    for name in values:
        reset = f"{RESET}{name}"
        if reset in values and not getattr(document.keys.get(name), "repeatable", True):
            raise document.error((*path, name), f"and {reset} contradict each other", "use only one of them")
    return tuple(
        setting for name, value in ordered for setting in _read_setting(document, (*path, name), value)
    )


def _is_reset(document: _Document, name: str, value: Any) -> bool:
    return name not in document.keys and name.startswith(RESET)


def _read_setting(document: _Document, path: KeyPath, value: Any) -> Iterator[Setting]:
    """Yield the values that a key gives to its option."""
    name = path[-1]
    key = document.keys.get(name)
    if key is None and _is_reset(document, name, value) and name.removeprefix(RESET) in document.keys:
        if value is not True:
            raise document.error(path, f"is {_render_value(value)}", "write true, or omit it")
        yield _make_setting(document, path, name.removeprefix(RESET), None)
        return
    if key is None:
        special = (INHERITS, MATCH) if path[0] == PRESET else ()
        raise document.error(path, "is unknown", _suggest(name, (*document.keys, *special)))
    for at, text in _read_texts(document, path, key, value):
        yield _make_setting(document, at, name, text)


def _make_setting(document: _Document, path: KeyPath, name: str, text: str | None) -> Setting:
    where = document.find(path)
    return Setting(name=name, text=text, key=render_key(path), line=where.line if where else 0)


def _read_texts(
    document: _Document, path: KeyPath, key: FileKey, value: Any
) -> Iterator[tuple[KeyPath, str | None]]:
    """Yield each value of a key as the text that its option reads, with its path; None resets the option."""
    if isinstance(value, dict) and key.name == "env":
        for name, text in value.items():
            if not isinstance(text, str):
                raise document.error((*path, name), f"is {_name_type(text)}, not a string", 'write "…"')
            yield (*path, name), f"{name}={text}"
        return
    for item in value if isinstance(value, list) and key.repeatable else [value]:
        if isinstance(item, bool) and (key.flag or key.bare is not None):
            yield path, ("true" if key.bare is None else key.bare) if item else None
        elif isinstance(item, str) and not key.flag:
            yield path, item
        elif type(item) in (int, float) and key.number:
            yield path, str(item)
        else:
            raise document.error(path, f"is {_name_type(item)}, not {_describe(key)}")


def _describe(key: FileKey) -> str:
    """Return what a key takes."""
    if key.flag:
        return "true or false"
    words = ["a string", "a number" if key.number else "", "true or false" if key.bare is not None else ""]
    words += ["a list of strings" if key.repeatable else "", "a table" if key.name == "env" else ""]
    return " or ".join(filter(None, words))


def _name_type(value: Any) -> str:
    """Return what a TOML value is, in words."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "a table" if isinstance(value, dict) else "a date or time")


def _render_value(value: Any) -> str:
    """Return a wrong value for a message: itself if it is short."""
    shown = repr(value) if isinstance(value, str | int | float) and type(value) is not bool else ""
    return shown if 0 < len(shown) <= _SHOWN else _name_type(value)


def render_key(path: KeyPath) -> str:
    """Return a dotted key as TOML writes it, cut if it is long."""
    return _clip(".".join(part if re.fullmatch(r"[\w-]+", part) else repr(part) for part in path))


def _clip(text: str) -> str:
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}..."


def _suggest(name: str, known: tuple[str, ...]) -> str:
    """Return a hint with the known name that is most similar to an unknown name."""
    from difflib import get_close_matches  # late: most files have no unknown key

    resets = tuple(f"{RESET}{key}" for key in known) if name.startswith(RESET) else ()
    near = get_close_matches(name.lower().replace("_", "-"), (*known, *resets), 1)
    return f"did you mean {near[0]}?" if near else "'ompbind config' lists all keys"
