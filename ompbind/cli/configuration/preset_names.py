"""The names of presets for completion, which needs nothing else of the files."""

from collections.abc import Mapping

from ompbind.cli.configuration.parse import parse_preset_names
from ompbind.cli.configuration.read_files import NO_FILES, FoundFiles, read_found_files, read_named_file
from ompbind.errors import ConfigurationError


def read_preset_names(env: Mapping[str, str], variable: str) -> tuple[str, ...]:
    """Return the names of the presets in the file that a variable names, or in the files that are found.

    A wrong file has none.
    """
    names: list[str] = []
    for content in _read_files(env, variable).read:
        try:
            names += parse_preset_names(content)
        except ConfigurationError:
            continue
    return tuple(dict.fromkeys(names))


def _read_files(env: Mapping[str, str], variable: str) -> FoundFiles:
    path = env.get(variable, "")
    try:
        return read_named_file(path, variable) if path else read_found_files(env)
    except ConfigurationError:
        return NO_FILES
