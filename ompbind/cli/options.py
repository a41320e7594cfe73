"""The table of all options: which of them a verb has, and the names of their variables and keys."""

from collections.abc import Iterator, Mapping

from ompbind.cli.configuration import make_configuration_options
from ompbind.cli.option import Option, find_settings
from ompbind.cli.planning_options import PLANNING_OPTIONS
from ompbind.cli.running_options import RUNNING_OPTIONS
from ompbind.cli.verbs import LAUNCHING, PLANNING, PREFIX, VERBS
from ompbind.compat.frameworks import FRAMEWORKS
from ompbind.planning.rank_variables import RANK_VARIABLES
from ompbind.registry.registry import DIRECTORY_VARIABLE
from ompbind.text import suggest_name


def find_options(verb: str) -> tuple[Option, ...]:
    """Return the options of a verb, in the order of the help."""
    rows = LAUNCH_OPTIONS
    if verb not in LAUNCHING:
        from ompbind.cli.other_options import OTHER_OPTIONS  # noqa: PLC0415 - door: verbs that start no ranks

        rows += OTHER_OPTIONS
    if verb == "bench":
        from ompbind.cli.bench_options import BENCH_OPTIONS  # noqa: PLC0415 - door: bench

        rows = (*BENCH_OPTIONS, *rows)
    shown = LAUNCH_OPTIONS if verb == "config" else ()  # it shows the values of these
    return tuple(option for option in rows if verb in option.verbs or option in shown)


def find_keys() -> Mapping[str, Option]:
    """Return the options that configuration files can contain, by key: options of all verbs."""
    return find_settings(option for verb in PLANNING for option in find_options(verb))


LAUNCH_OPTIONS = (*PLANNING_OPTIONS, *make_configuration_options(find_keys), *RUNNING_OPTIONS)
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

    known = {option.variable for verb in VERBS for option in find_options(verb)} - {""}
    endings = [name.removeprefix(PREFIX) for name in sorted({*known, *plugins - {""}, DIRECTORY_VARIABLE})]
    for name in unusual:
        if name not in known:
            similar = suggest_name(name.removeprefix(PREFIX), endings)
            removed = find_removed(name.removeprefix(PREFIX))
            yield name, removed or (similar and f"did you mean {PREFIX}{similar}?")
