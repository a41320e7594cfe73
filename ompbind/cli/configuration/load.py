"""Read all configuration files, choose the preset, and return the options that they give."""

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256

from ompbind.cli.configuration.parse import ConfigurationFile, Setting, parse_file
from ompbind.cli.configuration.presets import Host, PresetUse, find_preset, list_inherited, match_preset
from ompbind.cli.configuration.read_files import FileContent, FileKind, FoundFiles
from ompbind.cli.options.option import BINDING, CPUS, DEVICES, Given, Precedence, Source, make_keys
from ompbind.cli.options.values import Values
from ompbind.errors import ConfigurationError
from ompbind.planning.configuration import Configuration
from ompbind.planning.configuration_files import UsedFile

PROJECT_SECTIONS = (CPUS, DEVICES, BINDING)
"""The sections of the options that the defaults of a found project file can set.

The other options decide what runs and where output goes, and a project file may come from another user.
"""

_LEVELS = {
    FileKind.SYSTEM: Precedence.SYSTEM_FILE,
    FileKind.USER: Precedence.USER_FILE,
    FileKind.PROJECT: Precedence.FILE,
    FileKind.NAMED: Precedence.FILE,
}


def load_configuration(values: Values, found: FoundFiles) -> tuple[Configuration, tuple[Given, ...]]:
    """Return what was read, and the options that files and the preset give, lowest precedence first.

    `values` have --preset. Raises ConfigurationError.
    """
    files = tuple(_parse(content, values) for content in found.read)
    name = values["preset"]
    use = find_preset(files, name, values.source("preset").name) if name else None
    if not values.is_given("preset"):
        use = match_preset(files, read_host())
    configuration = Configuration(
        files=tuple(map(_describe, found.read)),
        ignored=found.ignored,
        preset=use.preset.name if use else "",
        preset_file=use.file.path if use else "",
        is_matched=bool(use) and not name,
        warnings=tuple(_make_warnings(files, found)),
    )
    return configuration, tuple(_make_givens(files, list_inherited(use, files) if use else ()))


def _parse(content: FileContent, values: Values) -> ConfigurationFile:
    """Return what a file says; the options of other verbs take time to import, so they are tried last."""
    try:
        return parse_file(content, make_keys(values.options.values()))
    except ConfigurationError:
        return parse_file(content, values.find_keys())


def read_host() -> Host:
    """Read what presets compare with their conditions."""
    return Host(hostname=os.uname().nodename, cpus=os.cpu_count() or 1)


def _describe(content: FileContent) -> UsedFile:
    return UsedFile(kind=content.kind, path=content.path, sha256=sha256(content.data).hexdigest())


def _make_givens(files: Sequence[ConfigurationFile], chain: Sequence[PresetUse]) -> Iterator[Given]:
    for file in files:
        for setting in file.settings:
            if not _is_without_effect(file, setting):
                yield _make_given(setting, file.path, _LEVELS[file.kind])
    for use in chain:
        for setting in use.preset.settings:
            yield _make_given(setting, use.file.path, Precedence.PRESET)


def _make_given(setting: Setting, path: str, level: Precedence) -> Given:
    where = f"{path}:{setting.line}" if setting.line else path
    source = Source(level=level, name=f"{where}: {setting.key}")
    return Given(option=setting.option, value=setting.value, source=source)


def _is_without_effect(file: ConfigurationFile, setting: Setting) -> bool:
    """Return whether a default of a project file has no effect, because the file may be another user's."""
    return file.kind is FileKind.PROJECT and setting.option.section not in PROJECT_SECTIONS


def _make_warnings(files: Sequence[ConfigurationFile], found: FoundFiles) -> Iterator[str]:
    for ignored in found.ignored:
        yield f"{ignored.path} is ignored: {ignored.reason}"
    for file in files:
        keys = dict.fromkeys(setting.key for setting in file.settings if _is_without_effect(file, setting))
        if keys:
            have = "has" if len(keys) == 1 else "have"
            reason = f"{', '.join(keys)} {have} no effect in a project file"
            yield f"{file.path}: {reason} (use a preset, or name the file with --config)"
        matching = [preset.name for preset in file.presets if preset.selects_machines]
        if matching and file.kind in (FileKind.PROJECT, FileKind.NAMED):
            text = "match has an effect only in the user's and the system's file"
            remedy = "move the preset there, or remove match and use --preset"
            yield f"{file.path}: {text}, not in preset {', '.join(matching)} ({remedy})"
