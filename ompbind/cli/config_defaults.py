"""The text of configuration files → their defaults, presets and groups; from these, the defaults of click.

A file has a table [defaults] and tables [preset.NAME] and [group.NAME]. Their keys are the long options
without "--"; what a key takes follows from its option. An error has the file, the line and the key.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from ompbind.cli import BINDING, CPUS, DEVICES
from ompbind.cli.config_files import FileContent, FileKind, FoundFiles
from ompbind.cli.option import Given, Option, ValueLevel, VerbContext, find_settings
from ompbind.cli.readers import read_group_name
from ompbind.cli.suggestions import suggest_word
from ompbind.errors import ConfigurationError, OmpbindError, OptionError, PositionError
from ompbind.planning.request import Configuration, IgnoredFile, UsedFile
from ompbind.record import Record
from ompbind.report.text import clip
from ompbind.text import suggest_name

KeyPath = tuple[str, ...]  # a dotted key

DEFAULTS, PRESET, GROUP = "defaults", "preset", "group"
COMMAND, AFTER = "command", "after"
ENV = "env"
RESET = "no-"  # before a key, it resets the option

DOTS_LIMIT = 100
"""Dots in a line of a file: the parser needs memory for the square of the parts of a dotted key."""

PROJECT_SECTIONS = (CPUS, DEVICES, BINDING)
"""The sections of the options that the defaults of a project file can set.

The other options decide what runs and where output goes, and another user may have written the file.
"""

_NOT_IN_PROJECTS = ("topology",)
"""Options of these sections that it cannot set: files of any directory would be read."""

_NAMED = 10  # presets that an error lists

Setting = tuple[Option, Given]  # one occurrence of an option in a file, at the place `FILE:LINE: KEY`


class GroupTable(Record):
    """A group of ranks: its command, its settings, and where it is in the file.

    `after` is the group that must be ready before it starts, "" for the group before it.
    """

    name: str
    command: tuple[str, ...]
    settings: tuple[Setting, ...]
    after: str
    place: str


class ConfigurationFile(Record):
    """What a configuration file says; `settings` are its defaults, `presets` and `groups` are by name."""

    kind: FileKind
    path: str
    settings: tuple[Setting, ...] = ()
    presets: Mapping[str, tuple[Setting, ...]] = {}
    groups: Mapping[str, GroupTable] = {}


def set_defaults(
    ctx: VerbContext, found: FoundFiles, name: str | None, find_keys: Callable[[], Mapping[str, Option]]
) -> None:
    """Set the defaults and the configuration of a command line; `name` is that of --preset.

    `find_keys` returns the options of all verbs by key. Raises ConfigurationError.
    """
    own = find_settings(ctx.command.params)
    files, warnings, settings = list[ConfigurationFile](), [*map(str, found.ignored)], list[Setting]()
    for content in found.read:
        try:
            file = parse_file(content, own)
        except OmpbindError:  # the options of other verbs take time to import, so they are tried last
            file = parse_file(content, find_keys())
        files.append(file)
        refused: dict[str, None] = {}
        for option, given in file.settings:
            is_usual = option.section in PROJECT_SECTIONS and option.name not in _NOT_IN_PROJECTS
            if is_usual or file.kind is not FileKind.PROJECT:
                settings.append((option, given))
            else:
                refused[given.place.rpartition(": ")[2]] = None
        if refused:
            reason = (
                f"{', '.join(refused)} {'has' if len(refused) == 1 else 'have'} no effect in a project file"
            )
            warnings.append(f"{file.path}: {reason} (use a preset, or name the file with --config)")
    preset = find_preset(files, name, ctx.sources.place("preset"), found.ignored) if name else None
    ctx.configuration = Configuration(
        files=tuple(
            UsedFile(kind=file.kind, path=file.path, sha256=sha256(file.data).hexdigest())
            for file in found.read
        ),
        ignored=found.ignored,
        preset=name or "",
        preset_file=preset.path if preset else "",
        warnings=tuple(warnings),
    )
    settings += preset.presets[name or ""] if preset else ()
    settings += ctx.table.settings if ctx.table else ()
    default_map: dict[str, tuple[Given, ...]] = {}
    for option, given in settings:
        if option in own.values():  # else it is of another verb, as --format of `plan`
            default_map[option.name] = (*default_map.get(option.name, ()), given)
    ctx.default_map = default_map
    ctx.find_tables = partial(_find_groups, files)


def find_preset(
    files: Sequence[ConfigurationFile], name: str, source: str, ignored: Sequence[IgnoredFile] = ()
) -> ConfigurationFile:
    """Return the file that defines the preset that `source` (--preset or its variable) names.

    Raises ConfigurationError if no file or two files define it; the hint names `ignored` files, which may
    define it.
    """
    defining = [file for file in files if name in file.presets]
    if not defining:
        names = dict.fromkeys(known for file in files for known in file.presets)
        raise make_undefined_error(f"{source}: preset", name, [*names], ignored)
    _check_once(f"{source}: ", defining, f"the preset {name!r}")
    return defining[0]


def make_undefined_error(
    what: str, name: str, known: Sequence[str], ignored: Sequence[IgnoredFile]
) -> ConfigurationError:
    """Return the error for the name of a preset or a group that no file defines; its hint lists others."""
    near = suggest_name(name, known)
    listed = ", ".join(known[:_NAMED]) + (" …" if len(known) > _NAMED else "")
    hint = f"these are defined: {listed}" if known else "'ompbind config' shows which files are read"
    hint = f"did you mean {near}?" if near else "; ".join(map(str, ignored)) or hint
    return ConfigurationError(f"{what} {name!r} is not defined", hint=hint)


def _find_groups(files: Sequence[ConfigurationFile]) -> dict[str, GroupTable]:
    groups = {name: table for file in files for name, table in file.groups.items()}
    for name in groups:
        _check_once("", [file for file in files if name in file.groups], f"the group {name!r}")
    return groups


def _check_once(source: str, files: Sequence[ConfigurationFile], what: str) -> None:
    if len(files) > 1:
        text = f"{source}{files[-1].path} and {files[0].path} both define {what}"
        raise ConfigurationError(text, hint="rename one of them, or name the file with --config")


def list_preset_names(found: FoundFiles) -> tuple[str, ...]:
    """Return the names of the presets of some files; a wrong file has none."""
    names: dict[str, None] = {}
    for content in found.read:
        try:
            names |= dict.fromkeys(parse_document(content, {}).values.get(PRESET, {}))
        except OmpbindError:
            continue
    return tuple(names)


class Document(Record):
    """A parsed file: its text and its tables, and the options that it can contain by key."""

    path: str
    text: str
    values: Mapping[str, Any]
    keys: Mapping[str, Option]

    def place(self, path: KeyPath) -> str:
        """Return where a key is: the file and, where it is found, the line."""
        line = _find_line(self.text, path)
        return f"{self.path}:{line}" if line else self.path

    def error(self, path: KeyPath, message: str, hint: str = "") -> ConfigurationError:
        """Return an error about a key; its message continues a sentence about the key."""
        return ConfigurationError(f"{self.place(path)}: {render_key(path)} {message}", hint=hint)


_PART = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"  # of a dotted key


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


def _split_key(text: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in re.findall(_PART, text))


def render_key(path: KeyPath) -> str:
    """Return a dotted key as TOML writes it, cut if it is long."""
    return clip(".".join(part if re.fullmatch(r"[\w-]+", part) else repr(part) for part in path))


def parse_document(content: FileContent, keys: Mapping[str, Option]) -> Document:
    """Parse a file; raises ConfigurationError for invalid TOML and unknown tables."""
    path = content.path
    try:
        text = content.data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.data.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path}:{line}: the text is not UTF-8") from error
    for number, line_text in enumerate(text.split("\n"), 1):
        if line_text.count(".") > DOTS_LIMIT:
            message = f"{path}:{number}: more than {DOTS_LIMIT} dots in a line"
            raise ConfigurationError(message, hint="write the values in several lines")
    try:
        document = Document(path=path, text=text, values=tomllib.loads(text), keys=keys)
    except RecursionError as error:
        raise ConfigurationError(f"{path}: too many brackets inside each other") from error
    except ValueError as error:  # TOMLDecodeError, and numbers that are too long
        message = str(error)
        found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
        where = f":{found[1] or text.rstrip(chr(10)).count(chr(10)) + 1}" if found else ""
        message = message[: found.start()] if found else message
        raise ConfigurationError(f"{path}{where}: {clip(message[:1].lower() + message[1:])}") from error
    _check_tables(document)
    return document


def _check_tables(document: Document) -> None:
    """Raise ConfigurationError for unknown keys at the top, and for values that should be tables."""
    tables: dict[KeyPath, Any] = {}
    for name, value in document.values.items():
        if name not in (DEFAULTS, PRESET, GROUP):
            is_option = name.removeprefix(RESET) in document.keys
            hint = "write it below [defaults]" if is_option else _suggest(name, (DEFAULTS, PRESET, GROUP))
            raise document.error((name,), "is unknown here", hint)
        tables[(name,)] = value
        if name != DEFAULTS and isinstance(value, dict):
            tables |= {(name, inner): table for inner, table in value.items()}
    for path, value in tables.items():
        if not isinstance(value, dict):
            shown = render_key((*path, "NAME") if path in ((PRESET,), (GROUP,)) else path)
            raise document.error(path, "is not a table", f"write [{shown}] on a line, and its keys below")


def parse_file(content: FileContent, keys: Mapping[str, Option]) -> ConfigurationFile:
    """Return what a file says; raises ConfigurationError for invalid TOML, unknown keys and wrong types."""
    document = parse_document(content, keys)
    level = ValueLevel.USER_FILE if content.kind is FileKind.USER else ValueLevel.FILE
    settings = _read_settings(document, (DEFAULTS,), document.values.get(DEFAULTS, {}), level)
    presets = {}
    for name, table in document.values.get(PRESET, {}).items():
        path = (PRESET, name)
        if not name.strip() or not name.isprintable():
            raise document.error(path, "has no name that can be used", "use letters, digits, - and _")
        presets[name] = _read_settings(document, path, table, ValueLevel.PRESET)
    groups = {name: _read_group(document, name) for name in document.values.get(GROUP, {})}
    return ConfigurationFile(
        kind=content.kind, path=content.path, settings=settings, presets=presets, groups=groups
    )


def _read_group(document: Document, name: str) -> GroupTable:
    """Return a group; raises ConfigurationError without a command, and for options of the whole run."""
    path, values = (GROUP, name), document.values[GROUP][name]
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
    settings = _read_settings(document, path, rest, ValueLevel.PRESET)
    return GroupTable(
        name=name, command=tuple(command), settings=settings, after=after, place=document.place(path)
    )


def _read_settings(
    document: Document, path: KeyPath, values: Mapping[str, Any], level: ValueLevel
) -> tuple[Setting, ...]:
    """Return the settings of a table: resets come first, as the order of keys has no meaning.

    Raises ConfigurationError for unknown keys and wrong values.
    """
    resets = {f"{RESET}{key}": option for key, option in document.keys.items() if f"{RESET}{key}" in values}
    settings: list[Setting] = []
    for name, value in sorted(values.items(), key=lambda item: item[0] not in resets):
        here, option = (*path, name), resets.get(name) or document.keys.get(name)
        if option is None:
            reset, special = RESET * name.startswith(RESET), (COMMAND, AFTER) if path[0] == GROUP else ()
            hint = _suggest(name.removeprefix(reset), (*document.keys, *special), reset)
            raise document.error(here, "is unknown", hint)
        if name not in resets:
            found = list(_read_values(document, here, option, value))
        elif value is not True:
            raise document.error(here, "is not true", "write true, or omit it")
        elif option.key in values and not option.multiple:
            text = f"and {name} contradict each other"
            raise document.error((*path, option.key), text, "use only one of them")
        else:
            found = [(here, None)]
        for at, given in found:
            if isinstance(given, str):
                _check_value(document, at, option, given)
            place = f"{document.place(at)}: {render_key(at)}"
            settings.append((option, Given(value=given, level=level, place=place)))
    return tuple(settings)


def _check_value(document: Document, path: KeyPath, option: Option, value: str) -> None:
    if "\0" in value:  # no command line and no variable can contain it
        raise document.error(path, "contains a null character")
    try:
        option.read(value)
    except OmpbindError as error:
        message = f"{document.place(path)}: {render_key(path)}: {error.message}"
        if isinstance(error, PositionError):  # the caret shows the wrong part of the value
            error.message = message
            raise
        word = suggest_word(value, option.words)
        hint = error.hint or (word and f"did you mean '{word}'?")
        raise ConfigurationError(message, hint=hint) from None


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
            is_huge = isinstance(item, int) and abs(item) >> 63  # Python limits decimal digits
            yield path, f"{item:#x}" if is_huge else str(item)
        else:
            takes = {
                "a string": not option.is_flag,
                "a number": option.number,
                "a list of strings": option.multiple,
                "a table": option.key == ENV,
                "true or false": option.is_flag or option.bare is not None,
            }
            wanted = " or ".join(what for what, is_taken in takes.items() if is_taken)
            raise document.error(path, f"is {_name_type(item)}, not {wanted}")


def _name_type(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "a table" if isinstance(value, dict) else "a date or time")


def _suggest(name: str, known: Collection[str], reset: str = "") -> str:
    """Return a hint with the known name, after `reset`, that an unknown name probably means."""
    near = suggest_name(name.lower().replace("_", "-"), known)
    return f"did you mean {reset}{near}?" if near else "'ompbind config --no-config' lists the keys"
