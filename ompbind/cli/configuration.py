"""The options --preset and --config: which configuration files are read, before all other options.

click reads these two options first. Once both are known, the files are read, and `ctx.default_map` gets the
occurrences that they give to each option, the lowest level first: defaults of the system's, the user's and
the project's file, then the preset after the presets that it extends. The keys are the long options: a new
option needs nothing here.
"""

import os
from collections.abc import Callable, Mapping

from ompbind.cli.config_files import NO_FILES, read_found_files, read_named_file
from ompbind.cli.option import FILES, Option, VerbContext
from ompbind.cli.readers import name_of
from ompbind.cli.verbs import CONFIGURATION, PLANNING, PREFIX
from ompbind.errors import OmpbindError

FindKeys = Callable[[], Mapping[str, Option]]
"""Returns the options of all verbs that configuration files can contain, by key."""


def make_configuration_options(find_keys: FindKeys) -> tuple[Option, ...]:
    """Return the rows of --preset and --config; each of them loads the files if it is read last."""

    def load(ctx: VerbContext, option: Option, value: str | None) -> str | None:
        values = {**ctx.params, option.name: value}
        if "config" in values and "preset" in values:
            try:
                _load_files(ctx, values["config"], values["preset"], find_keys)
            except OmpbindError:
                if not ctx.resilient_parsing:
                    raise
        return value

    return (
        Option("--preset", section=CONFIGURATION, verbs=PLANNING, read=name_of("a preset"),
               metavar="NAME", complete=_read_preset_names, callback=load, whole_run=False,
               help="Use the options of [preset.NAME] of a configuration file",
               default_help="the preset whose match fits this machine"),
        Option("--config", section=CONFIGURATION, verbs=PLANNING, read=name_of("a file"), metavar="FILE",
               complete=FILES, callback=load,
               help="Read only this configuration file; --no-config reads none",
               default_help="ompbind.toml of the project, the user and the system"),
    )  # fmt: skip


def _load_files(ctx: VerbContext, path: str | None, preset: str | None, find_keys: FindKeys) -> None:
    """Read the files and the preset, if there are any; raises ConfigurationError."""
    if path:
        found = read_named_file(path, ctx.sources.place("config"))
    else:
        found = NO_FILES if ctx.sources.is_given("config") else read_found_files(os.environ)
    if found == NO_FILES and not preset:
        return
    from ompbind.cli.config_defaults import set_defaults  # noqa: PLC0415 - door: configuration files

    set_defaults(ctx, found, preset, find_keys)


def _read_preset_names(text: str) -> tuple[str, ...]:
    """Return the names of the presets of the files that are found, for completion; none for a wrong file."""
    from ompbind.cli.config_defaults import list_preset_names  # noqa: PLC0415 - door: configuration files

    path = os.environ.get(f"{PREFIX}CONFIG", "")
    try:
        found = read_named_file(path, "") if path else read_found_files(os.environ)
        return list_preset_names(found)
    except OmpbindError:
        return ()
