"""Write the options of a candidate of `bench` as a preset into a configuration file.

The file is the user's file, or the file of --config. The preset is appended, so comments, the order and all
other text of the file stay as they are. An existing preset is never changed. The new text is checked by the
reader of configuration files before the file is replaced atomically. tomlkit writes the TOML: the standard
library only reads it.
"""

import fcntl
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import tomlkit

from ompbind.bench.records import Candidate, Kind
from ompbind.cli.bench_settings import BenchSettings
from ompbind.cli.config_defaults import find_preset, list_inherited
from ompbind.cli.config_files import (
    SIZE_LIMIT,
    FileContent,
    FileKind,
    find_user_file,
    read_found_files,
    read_named_file,
)
from ompbind.cli.config_parse import (
    ENV,
    INHERITS,
    PRESET,
    RESET,
    ConfigurationFile,
    parse_document,
    parse_file,
)
from ompbind.cli.option import Given, Option, ValueLevel, VerbContext
from ompbind.cli.options import find_keys
from ompbind.cli.run import VERB as RUN
from ompbind.cli.verbs import CONFIGURATION
from ompbind.errors import ConfigurationError, RequestError
from ompbind.execution.safe_files import open_parent
from ompbind.record import Record

_OWN_FILE = "use --config FILE with a file that only you can write"


def check_preset(name: str, settings: BenchSettings) -> str:
    """Return the path of the file that a preset would be written to; nothing is written.

    Raises ConfigurationError if the file cannot be used, or if it has a preset with this name.
    """
    target = _read_preset_file(settings)
    _check_new(name, target)
    _check_result(_make_content(target, name, _make_base(target, settings)), name, target.files)
    path = target.content.path
    directory = os.path.dirname(os.path.abspath(path))
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{path}: no permission to write in {directory}", hint=_OWN_FILE)
    return path


def save_preset(name: str, candidate: Candidate, settings: BenchSettings) -> str:
    """Write the options of a candidate as [preset.NAME], and return the path of the file.

    --config in the `settings` of `bench` chooses the file; the preset that `bench` used is inherited. Raises
    ConfigurationError, and RequestError for a candidate without options.
    """
    if candidate.kind is Kind.UNBOUND:
        text = f"no preset can be saved: {candidate.name} is the command without ompbind"
        raise RequestError(text, hint="start the command itself")
    path = _read_preset_file(settings).content.path
    try:
        os.makedirs(os.path.dirname(path) or ".", 0o700, exist_ok=True)
        with _lock_directory(path):
            target = _read_preset_file(settings)  # again: it may have changed before it was locked
            _check_new(name, target)
            keys = _make_base(target, settings) | _make_keys(candidate)
            content = _make_content(target, name, keys)
            _check_result(content, name, target.files)
            _replace(content)
    except OSError as error:
        message = f"{path}: the preset cannot be written: {error.strerror or error}"
        raise ConfigurationError(message, hint=_OWN_FILE) from error
    return path


class _PresetFile(Record):
    """The file that gets the preset, empty if there is none yet, and all files that are read with it."""

    content: FileContent
    files: tuple[FileContent, ...]


def _read_preset_file(settings: BenchSettings) -> _PresetFile:
    """Read the configuration files; raises ConfigurationError if the preset's file cannot be used."""
    named = settings.config
    if named:
        content = read_named_file(named, settings.planning.sources.place("config")).read[0]
        return _PresetFile(content=content, files=(content,))
    found = read_found_files(os.environ)
    path = find_user_file(os.environ)
    if not path:
        raise ConfigurationError("no preset can be saved: there is no home directory", hint=_OWN_FILE)
    for ignored in found.ignored:
        if ignored.path == path:
            raise ConfigurationError(f"{path}: no preset can be saved: {ignored.reason}", hint=_OWN_FILE)
    empty = FileContent(kind=FileKind.USER, path=path, data=b"")
    content = next((file for file in found.read if file.kind is FileKind.USER), empty)
    return _PresetFile(content=content, files=found.read)


def _check_new(name: str, target: _PresetFile) -> None:
    """Raise ConfigurationError if the file has a preset with this name, or a project file has."""
    for content in (*target.files, target.content):
        is_hidden = content.kind is FileKind.SYSTEM  # the preset of the user hides the preset of the system
        if not is_hidden and name in (preset.name for preset in _parse(content).presets):
            text = f"{content.path}: preset {name!r} is already defined"
            raise ConfigurationError(text, hint="choose another name, or remove the preset from the file")


def _parse(content: FileContent) -> ConfigurationFile:
    return parse_file(content, find_keys())


def _make_base(target: _PresetFile, settings: BenchSettings) -> dict[str, object]:
    """Return the key that inherits the preset that `bench` used; raises ConfigurationError if none can.

    A preset of the user's file can inherit presets of the system's file, otherwise of its own file.
    """
    used, path = settings.planning.configuration.preset, settings.planning.configuration.preset_file
    if not used:
        return {}
    bases = [file.path for file in target.files if file.kind is FileKind.SYSTEM]
    if path not in (target.content.path, *bases):
        message = f"{target.content.path}: no preset there can inherit the preset {used!r} of {path}"
        raise ConfigurationError(message, hint=f"use --config {shlex.quote(path)}")
    return {INHERITS: used}


def _make_keys(candidate: Candidate) -> dict[str, object]:
    """Return the keys and values that give the options of a candidate."""
    context = RUN.make_context("run", [*candidate.options, "--", "command"], resilient_parsing=True)
    assert isinstance(context, VerbContext)
    if not context.params["words"]:  # click has stopped at an option that it does not know
        text = f"no preset can be saved: the options of {candidate.name} cannot be read"
        raise RequestError(f"{text}: {shlex.join(candidate.options)}")
    made: dict[str, object] = {}
    for name, occurrences in context.sources.occurrences.items():
        option = context.sources.options[name]
        typed = [given for given in occurrences if given.level == ValueLevel.COMMAND_LINE]
        if typed and option.section != CONFIGURATION:
            made.update(_make_items(option, typed))
    return made


def _make_items(option: Option, givens: Sequence[Given]) -> Iterable[tuple[str, object]]:
    """Return the keys that give the occurrences of one option."""
    key = option.key
    reset = [(f"{RESET}{key}", True)] if givens[0].value is None else []
    found = [given.value for given in givens if given.value is not None]
    if not found:
        return reset
    if key == ENV:
        return [*reset, (key, dict(str(text).split("=", 1) for text in found))]
    if option.multiple:
        return [*reset, (key, found if len(found) > 1 else found[0])]
    value = found[-1]
    if value == "" and option.bare == "":
        return [(key, True)]
    is_number = option.number and isinstance(value, str) and value.isascii() and value.isdigit()
    return [(key, int(value) if is_number else value)]


def _make_content(target: _PresetFile, name: str, keys: dict[str, object]) -> FileContent:
    """Return the file with the preset after its end; raises ConfigurationError if it does not fit."""
    content = target.content
    root = parse_document(content, {}).root if content.data else ()
    table = keys
    for part in (name, PRESET, *reversed(root)):
        table = {part: table}
    text = content.data.decode().rstrip()
    try:
        data = f"{text}\n\n{tomlkit.dumps(table)}".lstrip("\n").encode()
    except UnicodeEncodeError:
        message = f"{content.path}: preset {name!r}: a value is not UTF-8"
        raise ConfigurationError(message, hint="TOML files are UTF-8") from None
    if len(data) > SIZE_LIMIT:
        raise ConfigurationError(f"{content.path}: no preset can be saved: it would have more than 256 KiB")
    return content.replace(data=data)


def _check_result(content: FileContent, name: str, files: Sequence[FileContent]) -> None:
    """Raise ConfigurationError if the new file would be wrong, or its preset could not be used."""
    try:
        _parse(content)
    except ConfigurationError as error:
        message = f"{content.path}: the table [{PRESET}.{name}] cannot be added: {error.message}"
        raise ConfigurationError(message, hint=f"write each preset below a line [{PRESET}.NAME]") from error
    kinds = list(FileKind)
    changed = [content, *(file for file in files if file.path != content.path)]
    parsed = [_parse(file) for file in sorted(changed, key=lambda file: kinds.index(file.kind))]
    list_inherited(find_preset(parsed, name, "--save-preset"), parsed)


@contextmanager
def _lock_directory(path: str) -> Iterator[None]:
    """Lock the directory of a file, so that two sessions do not overwrite each other's preset."""
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _replace(content: FileContent) -> None:
    """Replace the file; a new file is for its owner only, as values of --env may be secret."""
    directory, name = open_parent(content.path)
    try:
        old = directory.read_entry(name)
        risk = directory.find_risk(old)
        if risk:
            raise PermissionError(0, risk)
        directory.replace(name, old, content.data, mode=0o600)
    finally:
        directory.close()
