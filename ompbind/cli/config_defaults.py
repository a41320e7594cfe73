"""The content of configuration files and the preset → the defaults of click, and what was read."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256

from ompbind.cli.config_files import FileContent, FileKind, FoundFiles
from ompbind.cli.config_parse import ConfigurationFile, Setting, parse_file, parse_preset_names
from ompbind.cli.option import Given, Option, ValueLevel, VerbContext, find_settings
from ompbind.cli.presets import Host, PresetUse, find_preset, list_inherited, match_preset
from ompbind.cli.verbs import BINDING, CPUS, DEVICES
from ompbind.errors import OmpbindError
from ompbind.planning.configuration import Configuration, UsedFile

PROJECT_SECTIONS = (CPUS, DEVICES, BINDING)
"""The sections of the options that the defaults of a found project file can set.

The other options decide what runs and where output goes, and a project file may come from another user.
"""

_LEVELS = {
    FileKind.SYSTEM: ValueLevel.SYSTEM_FILE,
    FileKind.USER: ValueLevel.USER_FILE,
    FileKind.PROJECT: ValueLevel.FILE,
    FileKind.NAMED: ValueLevel.FILE,
}


def set_defaults(
    ctx: VerbContext, found: FoundFiles, name: str | None, find_keys: Callable[[], Mapping[str, Option]]
) -> None:
    """Set the defaults and the configuration of a command line; `name` is that of --preset.

    `find_keys` returns the options of all verbs by key. Raises ConfigurationError.
    """
    own = find_settings(ctx.command.params)
    files = tuple(_parse(content, own, find_keys) for content in found.read)
    use = find_preset(files, name, ctx.sources.place("preset")) if name else None
    if not ctx.sources.is_given("preset"):
        use = match_preset(files, read_host())
    ctx.configuration = Configuration(
        files=tuple(map(_describe, found.read)),
        ignored=found.ignored,
        preset=use.preset.name if use else "",
        preset_file=use.file.path if use else "",
        is_matched=bool(use) and not name,
        warnings=tuple(_make_warnings(files, found)),
    )
    default_map: dict[str, tuple[Given, ...]] = {}
    for option, given in _list_givens(files, list_inherited(use, files) if use else ()):
        if own.get(option.key) is not option:  # of another verb, as --format of `plan`
            continue
        default_map[option.name] = (*default_map.get(option.name, ()), given)
    ctx.default_map = default_map


def _parse(
    content: FileContent, own: Mapping[str, Option], find_keys: Callable[[], Mapping[str, Option]]
) -> ConfigurationFile:
    """Return what a file says; the options of other verbs take time to import, so they are tried last."""
    try:
        return parse_file(content, own)
    except OmpbindError:
        return parse_file(content, find_keys())


def read_host() -> Host:
    """Read what presets compare with their conditions."""
    return Host(hostname=os.uname().nodename, cpus=os.cpu_count() or 1)


def _describe(content: FileContent) -> UsedFile:
    return UsedFile(kind=content.kind, path=content.path, sha256=sha256(content.data).hexdigest())


def _list_givens(
    files: Sequence[ConfigurationFile], chain: Sequence[PresetUse]
) -> Iterator[tuple[Option, Given]]:
    """Yield each occurrence that files and presets give to an option, lowest level first."""
    for file in files:
        for setting in file.settings:
            if not _is_without_effect(file, setting):
                yield _make_given(setting, _LEVELS[file.kind])
    for use in chain:
        for setting in use.preset.settings:
            yield _make_given(setting, ValueLevel.PRESET)


def _make_given(setting: Setting, level: ValueLevel) -> tuple[Option, Given]:
    return setting.option, Given(value=setting.value, level=level, place=setting.place)


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


def list_preset_names(found: FoundFiles) -> tuple[str, ...]:
    """Return the names of the presets of some files; a wrong file has none."""
    names: list[str] = []
    for content in found.read:
        try:
            names += parse_preset_names(content)
        except OmpbindError:
            continue
    return tuple(dict.fromkeys(names))
