"""What a verb is, and how one is called: its options are read and checked, then it runs."""

import os
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from ompbind.cli.console import print_message
from ompbind.cli.options.option import CommandLine, Complete, Option
from ompbind.cli.options.rules import apply_rules
from ompbind.cli.options.values import Values, resolve_values
from ompbind.cli.options.variables import make_variable_givens
from ompbind.errors import OmpbindError, OptionError
from ompbind.record import Record

WordsAfter: TypeAlias = Literal["command", "optional command", "targets", "none"]
"""The words after the options: a command, a command that may be missing, processes and runs, or none."""


def _is_reporting() -> bool:
    return True


class Verb(Record):
    """One verb of the command line.

    - `run`: does the work; returns the exit code, or None for 0
    - `help`, `summary`: its description, and the line about it in the list of verbs
    - `examples`: pairs of a description and a command line; `details` only the complete help shows
    - `words`: which words follow the options, `complete_word` completes them
    - `is_reporting`: returns whether this process prints warnings about options: one of several that a
      launcher has started
    - `refuse`: called with the values that could be read and the error, if options are wrong
    """

    name: str
    run: Callable[[Values], int | None]
    help: str
    summary: str
    examples: tuple[tuple[str, str], ...]
    details: str = ""
    words: WordsAfter = "none"
    complete_word: Complete | None = None
    is_reporting: Callable[[], bool] = _is_reporting
    refuse: Callable[[Values, OmpbindError], None] | None = None


def call_verb(verb: Verb, options: Iterable[Option], line: CommandLine) -> int:
    """Run a verb with the options and words of its command line, and return its exit code."""
    values = Values(verb.name, options, line.words)
    try:
        read_values(values, line)
        if verb.words == "command" and not line.words:
            hint = f"write it after --; see 'ompbind {verb.name} --help'"
            raise OptionError("the command to start is missing", hint=hint)
        check_options(verb, values)
    except OmpbindError as error:
        refuse(verb, values, line, error)
        raise
    return verb.run(values) or 0


def read_values(values: Values, line: CommandLine, *, lenient: bool = False) -> None:
    """Read the values of all options from the command line and the environment.

    Raises OptionError or MaskError for a value that cannot be read; with `lenient` it counts as not given.
    """
    variables = make_variable_givens(values.options.values(), os.environ)
    resolve_values(values, (*variables, *line.givens), lenient=lenient)


def check_options(verb: Verb, values: Values) -> None:
    """Apply the rules of the options; raises RequestError for options that have no effect together.

    --quiet hides the warnings. --verbose, and --explain of `plan`, show what gave way.
    """
    found = apply_rules(values)
    warnings = () if values.get("quiet") else found.warnings
    explains = values.get("verbose") or values.get("explain")
    texts = (*(f"warning: {text}" for text in warnings), *(found.replaced if explains else ()))
    for text in texts if texts and verb.is_reporting() else ():
        print_message(text)


def refuse(verb: Verb, values: Values, line: CommandLine, error: OmpbindError) -> None:
    """Let a verb handle that its options are wrong; the error is raised afterwards."""
    if verb.refuse:
        read_values(values, line, lenient=True)
        verb.refuse(values, error)
