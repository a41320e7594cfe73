"""The names of presets for completion, which needs nothing else of the files."""

from collections.abc import Mapping

from ompbind.cli.configuration.parse import parse_preset_names
from ompbind.cli.configuration.read_files import read_found_files
from ompbind.errors import ConfigurationError


def read_preset_names(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the presets in the files that are found; a wrong file has none."""
    names: list[str] = []
    for content in read_found_files(env).read:
        try:
            names += parse_preset_names(content)
        except ConfigurationError:
            continue
    return tuple(dict.fromkeys(names))
