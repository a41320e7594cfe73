"""What a verb is, and how one is called: its options are read and checked, then it runs."""

from __future__ import annotations

import os

from ompbind.cli.configuration.search import has_candidates
from ompbind.cli.options.option import CONFIGURATION, PREFIX, CommandLine, Complete, Given
from ompbind.cli.options.rules import has_objections
from ompbind.cli.options.values import Values, resolve_values
from ompbind.errors import OmpbindError, OptionError
from ompbind.record import Record

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Literal, TypeAlias

    from ompbind.cli.description import Description

WordsAfter: TypeAlias = "Literal['command', 'optional command', 'targets', 'shell', 'verb', 'none']"
"""The words after the options: a command, a command that may be missing, processes and runs, and so on."""


def _is_reporting(values: Values) -> bool:
    return True


class Verb(Record):
    """One verb of the command line.

    - `run`: does the work; returns the exit code, or None for 0
    - `describe`: returns the texts about it, which only the help shows
    - `words`: which words follow the options, `complete_word` completes them
    - `is_reporting`: returns whether this process prints warnings about options: one of several that a
      launcher has started
    - `warns_of_variables`: it warns of variables that ompbind does not know, which --quiet hides
    - `shows_replaced`: it always shows which options gave way to others
    - `refuse`: called with the values that could be read and the error, if options are wrong
    """

    name: str
    run: Callable[[Values], int | None]
    describe: Callable[[], Description]
    words: WordsAfter = "none"
    complete_word: Complete | None = None
    is_reporting: Callable[[Values], bool] = _is_reporting
    warns_of_variables: bool = False
    shows_replaced: bool = False
    refuse: Callable[[Values, OmpbindError], None] | None = None


def call_verb(verb: Verb, values: Values, line: CommandLine) -> int:
    """Read the values of all options, run a verb with them, and return its exit code.

    An error about a value names the variable or the file from which the value comes.
    """
    _prepare(verb, values, line)
    try:
        return verb.run(values) or 0
    except OmpbindError as error:
        from ompbind.cli.options.error_sources import name_sources  # late: most runs have no error

        name_sources(error, values)
        raise


def _prepare(verb: Verb, values: Values, line: CommandLine) -> None:
    """Read and check the options; the verb handles an error, which is raised."""
    try:
        read_values(values, line)
        if verb.words == "command" and not line.words and not values.get("show"):  # files, not a command
            where = "after the image" if os.getpid() == 1 else "after --"  # the entry point ends with --
            hint = f"write it {where}; see 'ompbind {verb.name} --help'"
            raise OptionError("the command to start is missing", hint=hint)
        check_options(verb, values)
    except OmpbindError as error:
        refuse(verb, values, line, error)
        raise


def read_values(values: Values, line: CommandLine, *, lenient: bool = False) -> None:
    """Read the values of all options from files, the environment and the command line.

    Raises OptionError or PositionError for a wrong value or file; with `lenient` these count as not given.
    """
    givens = line.givens
    if has_own_variables(os.environ):
        from ompbind.cli.options.variables import make_variable_givens  # late: most environments have none

        givens = (*make_variable_givens(values.options.values(), os.environ), *givens)
    if "preset" in values.options:
        givens = (*_read_configuration(values, givens, lenient=lenient), *givens)
    values.occurrences = givens
    resolve_values(values, givens, lenient=lenient)


def has_own_variables(env: Mapping[str, str]) -> bool:
    """Return whether an environment has a variable that may be for ompbind."""
    return any(name.startswith(PREFIX) for name in env)


def _read_configuration(values: Values, givens: Sequence[Given], *, lenient: bool) -> tuple[Given, ...]:
    """Return the options that configuration files and presets give."""
    resolve_values(values, [given for given in givens if given.option.section == CONFIGURATION])
    path, is_default = values["config"], not values.is_given("config")
    if not (path or values["preset"] or (is_default and _has_files(os.environ))):
        return ()
    from ompbind.cli.configuration.read_files import NO_FILES, read_found_files, read_named_file  # late

    try:
        if is_default:
            files = read_found_files(os.environ)
        else:
            files = read_named_file(path, values.source("config").name) if path else NO_FILES
        if files == NO_FILES and not values["preset"]:
            return ()
        from ompbind.cli.configuration.load import load_configuration  # late: it imports tomllib

        values.configuration, found = load_configuration(values, files)
    except OmpbindError:
        if not lenient:
            raise
        return ()
    return tuple(given for given in found if values.options.get(given.option.name) is given.option)


def _has_files(env: Mapping[str, str]) -> bool:
    """Return whether there is a configuration file that this process would read by default."""
    if not has_candidates(env):
        return False
    from ompbind.cli.configuration.project_files import has_files  # late: many directories have no candidate

    return has_files(env)


def check_options(verb: Verb, values: Values) -> None:
    """Apply the rules of the options; raises RequestError for options that have no effect together.

    --quiet hides the warnings. --verbose, --explain of `plan`, and `config` show what gave way.
    """
    no_effect, replaced = _apply_rules(values)
    found_warnings = (*values.configuration.warnings, *no_effect, *_find_unknown_variables(verb))
    warnings = () if values.get("quiet") else found_warnings
    explains = verb.shows_replaced or values.get("verbose") or values.get("explain")
    texts = (*(f"warning: {text}" for text in warnings), *(replaced if explains else ()))
    if texts and verb.is_reporting(values):
        from ompbind.cli.console import print_message  # late: most command lines have no message

        for text in texts:
            print_message(text)


def _find_unknown_variables(verb: Verb) -> Iterable[str]:
    """Return the warnings about variables that ompbind does not know."""
    if not (verb.warns_of_variables and has_own_variables(os.environ)):
        return ()
    from ompbind.cli.unknown_variables import warn_of_variables  # late: most environments have none

    return warn_of_variables(os.environ)


def _apply_rules(values: Values) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return warnings about options that have no effect, and texts about options that gave way to others."""
    if not has_objections(values):
        return (), ()
    from ompbind.cli.options.apply_rules import apply_rules  # late: in most runs all options have an effect

    found = apply_rules(values)
    return found.warnings, found.replaced


def refuse(verb: Verb, values: Values, line: CommandLine, error: OmpbindError) -> None:
    """Let a verb handle that its options are wrong; the error is raised afterwards."""
    if verb.refuse:
        read_values(values, line, lenient=True)
        verb.refuse(values, error)
