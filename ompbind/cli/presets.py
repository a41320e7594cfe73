"""Which preset is used, and which presets it extends.

--preset names a preset of any file. Without it, a preset whose `match` fits this machine is used, from the
user's and the system's file only: a project must not choose for its users.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from ompbind.cli.config_files import FileKind
from ompbind.cli.config_parse import HOSTNAME, ConfigurationFile, Preset
from ompbind.errors import ConfigurationError
from ompbind.record import Record
from ompbind.text import suggest_name

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


def find_preset(files: Sequence[ConfigurationFile], name: str, source: str) -> PresetUse:
    """Return the preset that `source` (--preset or its variable) names.

    The user's preset hides a preset of the system. Raises ConfigurationError if no file defines it, or if a
    project file and another file do.
    """
    uses = [use for use in _list_presets(files) if use.preset.name == name]
    if not uses:
        raise ConfigurationError(f"{source}: preset {name!r} is not defined", hint=_list_names(files, name))
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
