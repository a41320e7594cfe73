"""The record of one option, and of the places where a value can come from."""

from __future__ import annotations

from enum import IntEnum

from ompbind.cli.verbs import PLANNING
from ompbind.record import Record

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeAlias

    from ompbind.cli.options.objection import Objection

PREFIX = "OMPBIND_"
"""The start of the names of all variables that ompbind reads or sets."""

_PLANNING_VERBS = frozenset(PLANNING)

CPUS = "Choose CPUs"
DEVICES = "Devices"
BINDING = "Bind threads and memory"
RANKS = "Environment of the ranks"
COMPARING = "Compare placements"
MEASURING = "Measure"
OUTPUT = "Output"
STOPPING = "Stop, check and report"
CONFIGURATION = "Configuration files"
"""The sections of the help; STOPPING has failures, time limits, --verify and --report.

COMPARING and MEASURING have the options of `bench`.
"""

Complete: TypeAlias = "Callable[[str], Sequence[str]]"
"""Returns words that may complete a text; the words that do not begin with the text are dropped."""

FILES = "file"
DIRECTORIES = "dir"
"""Completions: the shell completes names of files or directories."""


def complete_list(words: Iterable[str]) -> Complete:
    """Return a completion of the last of some comma-separated words."""

    def complete(text: str) -> Sequence[str]:
        before, comma, _ = text.rpartition(",")
        return [f"{before}{comma}{word}" for word in words]

    return complete


Options: TypeAlias = "Mapping[str, Any]"
"""The values of all options of a verb, by name."""

Rule: TypeAlias = "Callable[[Options], Objection | None]"
"""Returns why an option has no effect, from the values of all options; None if it has an effect."""


class Option(Record):
    """One option of the command line.

    - `names`: its short and long names, as `("-n", "--ranks")`; the last one is the long name
    - `read`: makes the value from text; raises OptionError or PositionError. The reader of a repeatable
      option returns a tuple, and its value has the items of all tuples
    - `flag`: it takes no value; its value is True or False
    - `bare`: the text of its value if it is given without one; None if it needs a value
    - `default`: the text of its default; None for no value (None, False or ())
    - `default_help`: what happens without the option, for the help
    - `number`: a number in a configuration file is allowed too
    - `words`: the words that it accepts; {words} in `help` lists them
    - `list_names`: returns the text for {names} in `help`, from a module that only the help needs
    - `complete`: its completion, if it is not `words`
    - `section`: its section in the help; `everyday` options are in the short help too, except in the help of
      the verbs `rare_in`
    - `verbs`: the verbs that have it
    - `excludes`: the names of options that contradict it
    - `rule`: when it has no effect, because of other options: the name of a `Rule` in a module beside this
      module, as `running_rules.check_output`. The module is imported when the option is given
    - `is_setting`: it can also be given as a variable and in a configuration file
    - `group`: options of the same group are spellings of one option: resetting one resets all
    """

    names: tuple[str, ...]
    read: Callable[[str], Any] = str
    flag: bool = False
    bare: str | None = None
    repeatable: bool = False
    default: str | None = None
    default_help: str = ""
    number: bool = False
    words: tuple[str, ...] = ()
    complete: Complete | str | None = None
    list_names: Callable[[], str] | None = None
    metavar: str = ""
    help: str
    section: str = "Options"
    everyday: bool = False
    rare_in: tuple[str, ...] = ()
    verbs: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    rule: str = ""
    is_setting: bool = True
    group: str = ""

    @property
    def long_name(self) -> str:
        """The long name with its dashes, as `--ranks`."""
        return self.names[-1]

    @property
    def key(self) -> str:
        """The name in a configuration file: the long name without dashes before it."""
        return self.long_name[2:]

    @property
    def name(self) -> str:
        """The name of its value, as `reserve_total`."""
        return self.key.replace("-", "_")

    @property
    def reset_name(self) -> str:
        """The name that resets the option to its default, as `--no-ranks`."""
        return f"--no-{self.key}"

    @property
    def variable(self) -> str:
        """The name of its environment variable, "" if it has none."""
        has_variable = self.is_setting and not _PLANNING_VERBS.isdisjoint(self.verbs)
        return f"{PREFIX}{self.name.upper()}" if has_variable else ""

    def is_everyday(self, verb: str) -> bool:
        """Return whether the short help of a verb has the option."""
        return self.everyday and verb not in self.rare_in

    @property
    def empty(self) -> Any:
        """The value of the option if it is not given and has no default."""
        return False if self.flag else () if self.repeatable else None

    @property
    def default_value(self) -> Any:
        """The value of the option if it is not given."""
        return self.empty if self.default is None else self.read(self.default)


class Precedence(IntEnum):
    """Where a value comes from; a higher level overrides a lower one.

    FILE are the defaults of a project file, or of the file that --config names.
    """

    DEFAULT = 0
    SYSTEM_FILE = 1
    USER_FILE = 2
    FILE = 3
    PRESET = 4
    VARIABLE = 5
    COMMAND_LINE = 6


class Source(Record):
    """Where a value comes from: its level, and the name of the option, variable or key of a file."""

    level: Precedence
    name: str


class Given(Record):
    """One occurrence of an option.

    `value` is the text of its value; True or False for a flag; None resets the option to its default.
    """

    option: Option
    value: str | bool | None
    source: Source


class CommandLine(Record):
    """The words of a command line after the verb: occurrences of options, and the words after them."""

    givens: tuple[Given, ...]
    words: tuple[str, ...]


def make_given(option: Option, value: str | bool | None) -> Given:
    """Return an occurrence of an option on the command line."""
    name = option.reset_name if value is None else option.long_name
    return Given(option=option, value=value, source=Source(level=Precedence.COMMAND_LINE, name=name))


def make_keys(options: Iterable[Option]) -> Mapping[str, Option]:
    """Return options by key, as configuration files can contain them: options with a variable.

    A file cannot choose the file and the preset.
    """
    return {option.key: option for option in options if option.variable and option.section != CONFIGURATION}
