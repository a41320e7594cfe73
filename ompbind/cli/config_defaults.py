"""The content of configuration files and the preset → the defaults of click, and what was read.

--preset names a preset of any file. Without it, a preset whose `match` fits this machine is used, from the
user's and the system's file only: a project must not choose for its users.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256

from ompbind.cli.config_files import FileContent, FileKind, FoundFiles, find_file_above
from ompbind.cli.config_parse import (
    HOSTNAME,
    ConfigurationFile,
    GroupTable,
    Preset,
    Setting,
    parse_file,
    parse_preset_names,
)
from ompbind.cli.option import Given, Option, ValueLevel, VerbContext, find_settings
from ompbind.cli.verbs import BINDING, CPUS, DEVICES
from ompbind.errors import ConfigurationError, OmpbindError
from ompbind.planning.configuration import Configuration, IgnoredFile, UsedFile
from ompbind.record import Record
from ompbind.text import suggest_name

PROJECT_SECTIONS = (CPUS, DEVICES, BINDING)
"""The sections of the options that the defaults of a found project file can set.

The other options decide what runs and where output goes, and a project file may come from another user.
"""

_NOT_IN_PROJECTS = ("topology",)
"""Options of these sections that it cannot set: files of any directory would be read."""

_LEVELS = {
    FileKind.SYSTEM: ValueLevel.SYSTEM_FILE,
    FileKind.USER: ValueLevel.USER_FILE,
    FileKind.PROJECT: ValueLevel.FILE,
    FileKind.NAMED: ValueLevel.FILE,
}


INHERITED_LIMIT = 20
"""The most presets that a preset inherits, directly or not."""

_NAMED = 10  # presets that an error lists


class Host(Record):
    """What `match` compares: the name of this machine, and its online CPUs."""

    hostname: str
    cpus: int


class PresetUse(Record):
    """A preset and the file that defines it."""

    preset: Preset
    file: ConfigurationFile


class GroupUse(Record):
    """A group and the file that defines it."""

    table: GroupTable
    file: ConfigurationFile


def find_groups(files: Sequence[ConfigurationFile]) -> dict[str, GroupUse]:
    """Return the groups of files by name, as `find_preset` finds presets; raises ConfigurationError."""
    found: dict[str, GroupUse] = {}
    for file in files:
        for table in file.groups:
            before = found.get(table.name)
            if before and file.kind is FileKind.PROJECT:
                text = f"{file.path} and {before.file.path} both define the group {table.name!r}"
                raise ConfigurationError(text, hint="rename one of them, or name the file with --config")
            found[table.name] = GroupUse(table=table, file=file)
    return found


def set_defaults(
    ctx: VerbContext, found: FoundFiles, name: str | None, find_keys: Callable[[], Mapping[str, Option]]
) -> None:
    """Set the defaults and the configuration of a command line; `name` is that of --preset.

    `find_keys` returns the options of all verbs by key. Raises ConfigurationError.
    """
    own = find_settings(ctx.command.params)
    files = tuple(_parse(content, own, find_keys) for content in found.read)
    ignored = found.ignored
    if name and not (ignored or ctx.sources.is_given("config")):
        ignored = find_file_above(os.environ)
    use = find_preset(files, name, ctx.sources.place("preset"), ignored) if name else None
    if not ctx.sources.is_given("preset"):
        use = match_preset(files, read_preset_host())
    ctx.configuration = Configuration(
        files=tuple(
            UsedFile(kind=file.kind, path=file.path, sha256=sha256(file.data).hexdigest())
            for file in found.read
        ),
        ignored=found.ignored,
        preset=use.preset.name if use else "",
        preset_file=use.file.path if use else "",
        is_matched=bool(use) and not name,
        warnings=tuple(_make_warnings(files, found)),
    )
    default_map: dict[str, tuple[Given, ...]] = {}
    chain = list_inherited(use, files) if use else ()
    if ctx.table is not None:
        group = PresetUse(preset=ctx.table.table.preset, file=ctx.table.file)
        chain = (*chain, *_check_group(list_inherited(group, files)))
    ctx.find_tables = partial(find_groups, files)
    for setting, level in _list_settings(files, chain):
        option = setting.option
        if own.get(option.key) is not option:  # of another verb, as --format of `plan`
            continue
        given = Given(value=setting.value, level=level, place=setting.place)
        default_map[option.name] = (*default_map.get(option.name, ()), given)
    ctx.default_map = default_map


def _check_group(chain: tuple[PresetUse, ...]) -> tuple[PresetUse, ...]:
    """Return the presets of a group; raises ConfigurationError if one has an option of the whole run."""
    for setting in (setting for use in chain for setting in use.preset.settings):
        if setting.option.whole_run:
            text = f"{setting.place} is an option of the whole run, but a group inherits it"
            raise ConfigurationError(text, hint="write it below [defaults], or on the command line")
    return chain


def _parse(
    content: FileContent, own: Mapping[str, Option], find_keys: Callable[[], Mapping[str, Option]]
) -> ConfigurationFile:
    """Return what a file says; the options of other verbs take time to import, so they are tried last."""
    try:
        return parse_file(content, own)
    except OmpbindError:
        return parse_file(content, find_keys())


def read_preset_host() -> Host:
    """Read what presets compare with their conditions."""
    return Host(hostname=os.uname().nodename, cpus=os.cpu_count() or 1)


def _list_settings(
    files: Sequence[ConfigurationFile], chain: Sequence[PresetUse]
) -> Iterator[tuple[Setting, ValueLevel]]:
    """Yield the settings of files and presets that have an effect, lowest level first."""
    for file in files:
        for setting in file.settings:
            if not _is_without_effect(file, setting):
                yield setting, _LEVELS[file.kind]
    for use in chain:
        yield from ((setting, ValueLevel.PRESET) for setting in use.preset.settings)


def _is_without_effect(file: ConfigurationFile, setting: Setting) -> bool:
    """Return whether a default of a project file has no effect, because the file may be another user's."""
    option = setting.option
    is_refused = option.section not in PROJECT_SECTIONS or option.name in _NOT_IN_PROJECTS
    return file.kind is FileKind.PROJECT and is_refused


def _make_warnings(files: Sequence[ConfigurationFile], found: FoundFiles) -> Iterator[str]:
    for ignored in found.ignored:
        yield str(ignored)
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


def find_preset(
    files: Sequence[ConfigurationFile], name: str, source: str, ignored: Sequence[IgnoredFile] = ()
) -> PresetUse:
    """Return the preset that `source` (--preset or its variable) names.

    The user's preset hides a preset of the system. Raises ConfigurationError if no file defines it, or if a
    project file and another file do; the hint names `ignored` files, which may define it.
    """
    uses = [use for use in _list_presets(files) if use.preset.name == name]
    if not uses:
        hint = "; ".join(map(str, ignored)) or _list_names(files, name)
        raise ConfigurationError(f"{source}: preset {name!r} is not defined", hint=hint)
    if len(uses) > 1 and uses[-1].file.kind is FileKind.PROJECT:
        text = f"{source}: {uses[-1].file.path} and {uses[-2].file.path} both define the preset {name!r}"
        raise ConfigurationError(text, hint="rename one of them, or name the file with --config")
    return uses[-1]


def _list_presets(files: Sequence[ConfigurationFile]) -> Iterator[PresetUse]:
    """Yield all presets, lowest precedence of their files first."""
    for file in files:
        yield from (PresetUse(preset=preset, file=file) for preset in file.presets)


def _list_names(files: Sequence[ConfigurationFile], wrong: str) -> str:
    """Return a hint with the presets that are defined."""
    names = list(dict.fromkeys(use.preset.name for use in _list_presets(files)))
    near = suggest_name(wrong, names)
    if near:
        return f"did you mean {near}?"
    shown = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    return f"these are defined: {shown}" if names else "'ompbind config' shows which files are read"


def match_preset(files: Sequence[ConfigurationFile], host: Host) -> PresetUse | None:
    """Return the preset whose conditions fit a machine; None if there is none.

    The user's file decides before the system's. Raises ConfigurationError for two such presets in one file.
    """
    for kind in (FileKind.USER, FileKind.SYSTEM):
        matching = [
            use for use in _list_presets(files) if use.file.kind is kind and is_matching(use.preset, host)
        ]
        if len(matching) > 1:
            names = " and ".join(use.preset.name for use in matching)
            text = f"{matching[0].file.path}: the presets {names} both match this machine"
            raise ConfigurationError(text, hint=f"choose with --preset, or narrow {HOSTNAME} of their match")
        if matching:
            return matching[0]
    return None


def is_matching(preset: Preset, host: Host) -> bool:
    """Return whether a preset has conditions that all fit a machine; * and ? stand for any characters."""
    names = (host.hostname, host.hostname.partition(".")[0])
    is_host = not preset.hostname or any(fnmatchcase(name, preset.hostname) for name in names)
    return preset.selects_machines and is_host and preset.cpus in (0, host.cpus)


def list_inherited(use: PresetUse, files: Sequence[ConfigurationFile]) -> tuple[PresetUse, ...]:
    """Return a preset after the presets that it extends: later ones replace values of earlier ones.

    A preset of the user's file may also extend a preset of the system's file. Raises ConfigurationError for
    an unknown preset and for a cycle.
    """
    chain = [use]
    while name := chain[0].preset.inherits:
        chain.insert(0, _find_base(chain[0], name, files))
        names = [(entry.file.kind, entry.preset.name) for entry in chain]
        if names[0] in names[1:]:
            circle = " → ".join(name for _, name in reversed(names[: names.index(names[0], 1) + 1]))
            text = f"{chain[0].file.path}: presets inherit in a circle: {circle}"
            raise ConfigurationError(text, hint="remove inherits from one of them")
        if len(chain) > INHERITED_LIMIT:
            text = f"{use.file.path}: preset {use.preset.name} inherits more than {INHERITED_LIMIT} presets"
            raise ConfigurationError(text, hint="put the keys of several presets into one preset")
    return tuple(chain)


def _find_base(use: PresetUse, name: str, files: Sequence[ConfigurationFile]) -> PresetUse:
    """Return the preset that another extends: of the same file, or of the system's for the user's file."""
    below = [file for file in files if file.kind is FileKind.SYSTEM] if use.file.kind is FileKind.USER else []
    allowed = [*below, use.file]
    bases = [base for base in _list_presets(allowed) if base.preset.name == name]
    if not bases:
        text = f"{use.file.path}: preset {use.preset.name} inherits {name!r}, which is not defined"
        raise ConfigurationError(text, hint=_list_names(allowed, name))
    return bases[-1]
