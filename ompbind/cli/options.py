"""The table of all options: which of them a verb has, and the names of their variables and keys.

click reads --preset and --config first. Once both are known, the configuration files are read, and
`ctx.default_map` gets the occurrences that they give to each option, the lowest level first. Their keys are
the long options: a new option needs nothing here.
"""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module

from ompbind.cli.config_files import NO_FILES, read_found_files, read_named_file
from ompbind.cli.option import FILES, Option, VerbContext, find_settings
from ompbind.cli.planning_options import PLANNING_OPTIONS
from ompbind.cli.readers import name_of
from ompbind.cli.running_options import RUNNING_OPTIONS
from ompbind.cli.verbs import CONFIGURATION, LAUNCHING, PLANNING, PREFIX
from ompbind.compat.frameworks import FRAMEWORKS
from ompbind.errors import OmpbindError
from ompbind.planning.rank_variables import RANK_VARIABLES
from ompbind.registry.registry import DIRECTORY_VARIABLE
from ompbind.text import suggest_name


def find_options(verb: str) -> tuple[Option, ...]:
    """Return the options of a verb, in the order of the help.

    Options of one verb alone are `OPTIONS` of its module, which defines them before its `VERB`.
    """
    rows = LAUNCH_OPTIONS
    if verb not in (*LAUNCHING, "bench"):
        rows += getattr(import_module(f"ompbind.cli.{verb}"), "OPTIONS", ())
    if verb == "bench":
        from ompbind.cli.bench_options import BENCH_OPTIONS  # noqa: PLC0415 - door: bench

        rows = (*BENCH_OPTIONS, *rows)
    shown = LAUNCH_OPTIONS if verb == "config" else ()  # it shows the values of these
    return tuple(option for option in rows if verb in option.verbs or option in shown)


def find_keys() -> Mapping[str, Option]:
    """Return the options that configuration files can contain, by key: options of all verbs."""
    return find_settings(option for verb in PLANNING for option in find_options(verb))


def _load_files(ctx: VerbContext, option: Option, value: str | None) -> str | None:
    """Read the files and the preset, once --config and --preset are both known; raises ConfigurationError."""
    values = {**ctx.params, option.name: value}
    if not {"config", "preset"} <= values.keys():
        return value
    path, preset = values["config"], values["preset"]
    try:
        if path:
            found = read_named_file(path, ctx.sources.place("config"))
        else:
            found = NO_FILES if ctx.sources.is_given("config") else read_found_files(os.environ)
        if found != NO_FILES or preset:
            from ompbind.cli.config_defaults import set_defaults  # noqa: PLC0415 - door: configuration files

            set_defaults(ctx, found, preset, find_keys)
    except OmpbindError:
        if not ctx.resilient_parsing:
            raise
    return value


def _complete_presets(text: str) -> tuple[str, ...]:
    """Return the names of the presets of the files that are found; none for a wrong file."""
    from ompbind.cli.config_defaults import list_preset_names  # noqa: PLC0415 - door: configuration files

    path = os.environ.get(f"{PREFIX}CONFIG", "")
    try:
        return list_preset_names(read_named_file(path, "") if path else read_found_files(os.environ))
    except OmpbindError:
        return ()


LAUNCH_OPTIONS = (
    *PLANNING_OPTIONS,
    Option("--preset", section=CONFIGURATION, verbs=PLANNING, read=name_of("a preset"), metavar="NAME",
           complete=_complete_presets, callback=_load_files, whole_run=False,
           help="Use the options of [preset.NAME] of a configuration file"),
    Option("--config", section=CONFIGURATION, verbs=PLANNING, read=name_of("a file"), metavar="FILE",
           complete=FILES, callback=_load_files,
           help="Read only this configuration file; --no-config reads none",
           default_help="ompbind.toml of the working directory and of the user"),
    *RUNNING_OPTIONS,
)  # fmt: skip
"""The options of verbs that start ranks, in the order of the help; `plan` has some of them."""


def find_variables() -> tuple[str, ...]:
    """Return the variables of options: they are for this run, so its ranks do not inherit them."""
    return tuple(option.variable for option in LAUNCH_OPTIONS if option.has_variable)


def find_unknown_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that ompbind does not know, and a hint: what to use instead, "" for nothing."""
    plugins = {framework.plugin for framework in FRAMEWORKS.values()}
    usual = {*find_variables(), *RANK_VARIABLES, *plugins, DIRECTORY_VARIABLE}
    unusual = [name for name in sorted(env) if name.startswith(PREFIX) and env[name] and name not in usual]
    if not unusual:
        return
    from ompbind.cli.suggestions import find_removed  # noqa: PLC0415 - door: a wrong variable

    known = {option.variable for verb in PLANNING for option in find_options(verb)} - {""}
    endings = [name.removeprefix(PREFIX) for name in sorted({*known, *plugins - {""}, DIRECTORY_VARIABLE})]
    for name in unusual:
        if name not in known:
            similar = suggest_name(name.removeprefix(PREFIX), endings)
            removed = find_removed(name.removeprefix(PREFIX))
            yield name, removed or (similar and f"did you mean {PREFIX}{similar}?")
