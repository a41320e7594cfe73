"""One option of the command line, and where its value comes from.

click reads the command line, and this module says what an option adds to it: `--no-NAME` resets an option,
values also come from configuration files, and lists add up over all sources. `Option` overrides three methods
of click for this: `add_to_parser`, `consume_value` and `process_value`. Nothing else of ompbind does.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any

import click
from click.core import ParameterSource

from ompbind.cli import BINDING, CONFIGURATION, CPUS, DEVICES, GROUPS, PLANNING, PREFIX, RANKS
from ompbind.cli.readers import one_of
from ompbind.errors import MaskError, OmpbindError, OptionError, PlanError, PositionError
from ompbind.planning.request import Configuration
from ompbind.record import Record
from ompbind.text import mask_text, whole_number

FILES = "file"
DIRECTORIES = "dir"
"""Completions: the shell completes names of files or directories."""

TRUE_WORDS = ("1", "true", "t", "yes", "y", "on")
FALSE_WORDS = ("0", "false", "f", "no", "n", "off")

_OF_GROUPS = (GROUPS, CPUS, DEVICES, BINDING, RANKS)
"""The sections whose options each group of a run has, unless their row says otherwise."""

_SHOWN, _SHORT = 40, 2
"""Characters of values: the most that messages show, and as many as they have by chance."""

Complete = Callable[[str], Sequence[str]]
"""Returns words that may complete a text; the words that do not begin with the text are dropped."""


def make_completion(value: str, **more: Any) -> Any:
    """Return a CompletionItem of click: a word, or with `type` what the shell completes."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - door: completion

    return CompletionItem(value, **more)


def complete_list(words: Iterable[str]) -> Complete:
    """Return a completion of the last of some comma-separated words."""

    def complete(text: str) -> Sequence[str]:
        before, comma, _ = text.rpartition(",")
        return [f"{before}{comma}{word}" for word in words]

    return complete


class ValueLevel(IntEnum):
    """Where a value comes from; a higher level overrides a lower one.

    FILE are the defaults of a project file, or of the file that --config names.
    """

    DEFAULT = 0
    USER_FILE = 1
    FILE = 2
    PRESET = 3
    VARIABLE = 4
    COMMAND_LINE = 5


class Given(Record):
    """One occurrence of an option.

    `value` is the text of its value; True or False for a flag; None resets the option to its default.
    `place` names the option, the variable, or the key of a file with its line.
    """

    value: str | bool | None
    level: ValueLevel
    place: str


class Option(click.Option):
    """One row of the table of options.

    - `names`: its short and long names, as `"-n", "--ranks"`; the last one is the long name; `reset_name`,
      as `--no-ranks`, resets it to its default, and its `variable` is "" if it has none
    - `read`: makes the value from text, without it one of the `words`; raises OptionError or PositionError.
      The reader of an option with `multiple` returns a tuple, and its value has the items of all tuples
    - `flag`: it takes no value; its value is True or False
    - `bare`: the text of its value if it is given without one; None if it needs a value
    - `default`: the text of its default; None for no value (None, False or ())
    - `default_help`: what happens without the option, for the help
    - `number`: a number in a configuration file is allowed too
    - `words`: the words that it accepts; {words} in `help` lists them
    - `list_names`: returns the text for {names} in `help`
    - `complete`: its completion, if it is not `words`
    - `section`: its section in the help; `everyday` options are in the short help too, except in the help of
      the verbs `rare_in`
    - `verbs`: the verbs that have it
    - `is_setting`: it can also be given as a variable and in a configuration file
    - `spellings`: options with the same word here are spellings of one option: resetting one resets all
    - `whole_run`: in a run with groups, it is for all of them, and stands before the first command
    - `own`: hardly another program has an option of this name, so after a command it is probably misplaced
    - `callback`: called with the value, as click's
    """

    def __init__(
        self,
        *names: str,
        help: str,
        verbs: tuple[str, ...],
        section: str = "Options",
        read: Callable[[str], Any] | None = None,
        multiple: bool = False,
        flag: bool = False,
        bare: str | None = None,
        default: str | None = None,
        default_help: str = "",
        number: bool = False,
        words: tuple[str, ...] = (),
        list_names: Callable[[], str] | None = None,
        complete: Complete | str | None = None,
        metavar: str = "",
        everyday: bool = False,
        rare_in: tuple[str, ...] = (),
        is_setting: bool = True,
        spellings: str = "",
        whole_run: bool | None = None,
        own: bool = False,
        callback: Callable[[Any, "Option", Any], Any] | None = None,
    ) -> None:
        # to click, `is_flag=False` with a flag value means that the value is optional
        kind: dict[str, Any] = {"is_flag": True} if flag else {}
        if bare is not None:
            kind = {"is_flag": False, "flag_value": bare}
        self.names = names
        self.long_name = names[-1]
        self.key = self.long_name[2:]
        self.reset_name = f"--no-{self.key}"
        self.has_variable = is_setting and not set(PLANNING).isdisjoint(verbs)
        self.variable = f"{PREFIX}{self.key.upper().replace('-', '_')}" if self.has_variable else ""
        super().__init__(
            [*names, self.key.replace("-", "_")],
            help=help,
            multiple=multiple,
            is_eager=section == CONFIGURATION,
            allow_from_autoenv=self.has_variable,
            callback=callback,
            **kind,
        )
        self.verbs, self.section, self.everyday, self.rare_in = verbs, section, everyday, rare_in
        self.read = read or (one_of(words) if words else str)
        self.bare, self.number, self.spellings, self.own = bare, number, spellings, own
        self.default_text, self.default_help = default, default_help
        self.words, self.list_names, self.complete = words, list_names, complete
        self.value_name = "" if flag else metavar or "|".join(words)
        self.whole_run = section not in _OF_GROUPS if whole_run is None else whole_run

    @property
    def default_value(self) -> Any:
        """The value of the option if it is not given."""
        if self.default_text is None:
            return False if self.is_flag else () if self.multiple else None
        return self.read(self.default_text)

    def render(self, text: str) -> str:
        """Return the option with a value as it could be written; a long value is omitted."""
        separator = "=" if self.bare is not None or text.startswith("-") else " "
        return self.long_name + _render_value(separator, text)

    def is_everyday(self, verb: str) -> bool:
        """Return whether the short help of a verb has the option."""
        return self.everyday and verb not in self.rare_in

    def render_help(self) -> str:
        """Return the help of the option, with its words, its names and its default."""
        marked = (f"{word} (default)" if word == self.default_text else word for word in self.words)
        text = str(self.help).replace("{words}", ", ".join(marked))
        if self.list_names:
            text = text.replace("{names}", self.list_names())
        marks_default = "{words}" in str(self.help)
        default = self.default_help or ("" if marks_default else self.default_text)
        return f"{text} [default: {default}]" if default else text

    def render_names(self) -> str:
        """Return the names and the value; an optional value `[=VALUE]` follows its option without a space."""
        space = " " if self.value_name and not self.value_name.startswith("[=") else ""
        return f"{', '.join(self.names)}{space}{self.value_name}"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the names with the value, and the help."""
        return self.render_names(), self.render_help()

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return completions of the value."""
        if isinstance(self.complete, str):
            return [make_completion(incomplete, type=self.complete)]
        words = self.words if self.complete is None else self.complete(incomplete)
        found = [make_completion(word) for word in words if word.startswith(incomplete)]
        return found or ([make_completion(incomplete, type="file")] if self.complete else [])

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser collect all occurrences of the option, and of the name that resets it."""
        action = "append_const" if self.is_flag else "append"
        parser.add_option(obj=self, opts=self.opts, dest=self.name, action=action, const=True)
        parser.add_option(obj=self, opts=[self.reset_name], dest=self.name, action="append_const", const=None)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """Return the occurrences that make the value, and for click whether there are any.

        Of a scalar the last occurrence counts, of a list all after its last reset. Resetting one of several
        spellings drops the occurrences of the others at lower levels.
        """
        assert isinstance(ctx, VerbContext)
        sources = ctx.sources
        found = sources.occurrences[self.name] = self.collect(ctx, opts)
        if self.spellings:
            same = [option for option in sources.options.values() if option.spellings == self.spellings]
            of_all = [given for option in same for given in option.collect(ctx, opts)]
            reset = max((given.level for given in of_all if not given.value), default=ValueLevel.DEFAULT)
            found = tuple(given for given in found if given.level >= reset)
        after = next((i for i in range(len(found), 0, -1) if found[i - 1].value is None), 0)  # the last reset
        counting = found[after:] if self.multiple else found[after:][-1:]
        if found:
            sources.effective[self.name] = counting or found[-1:]
        return counting, ParameterSource.DEFAULT_MAP if found else ParameterSource.DEFAULT

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Read the value of the option from its occurrences; an error names where it comes from."""
        read = [self._read(ctx, given) for given in value]
        if self.multiple:
            made: Any = tuple(item for items in read for item in items)
        else:
            made = read[0] if read else self.default_value
        return self.callback(ctx, self, made) if self.callback else made

    def collect(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Given, ...]:
        """Return all occurrences: in files and presets, in the variable, and on the command line.

        Raises OptionError if a value is the next word, and that is `--` or another option.
        """
        assert isinstance(ctx, VerbContext)
        files = (ctx.default_map or {}).get(self.name, ())
        text = None if ctx.resilient_parsing else self.resolve_envvar_value(ctx)
        values = self._split_variable(text) if text else ()
        found = [Given(value=it, level=ValueLevel.VARIABLE, place=self.variable) for it in values]
        for value in opts.get(self.name, ()):
            if isinstance(value, str) and (value == "--" or ctx.find_option(value)):
                attached = re.compile(f"({self.long_name}=|-[a-zA-Z]*{self.names[0][1:]}){re.escape(value)}")
                if not (ctx.resilient_parsing or any(map(attached.fullmatch, ctx.typed))):
                    text = f"{'/'.join(self.names)}: the value is missing: the next word is {value}"
                    hint = f"write {self.long_name}={self.value_name}"
                    with suppress(OmpbindError):
                        if value != "--" and self.read(value):
                            hint += f", or {self.long_name}={value} for this value"
                    raise OptionError(text, hint=hint)
            # click has a mark of its own for an option that is given without its value
            known = value if value is None or isinstance(value, bool | str) else self.bare
            place = self.reset_name if value is None else self.long_name
            found.append(Given(value=known, level=ValueLevel.COMMAND_LINE, place=place))
        return (*files, *found)

    def _split_variable(self, text: str) -> Sequence[str | bool | None]:
        """Return what the variable gives: texts of values, True or False for a flag, None for a reset."""
        word = text.strip().lower()
        if self.is_flag:
            if word not in TRUE_WORDS + FALSE_WORDS:
                raise OptionError(f"{self.variable}: {text!r} is not 1 (yes) or 0 (no)")
            return [word in TRUE_WORDS]
        is_number = self.number and whole_number(word) is not None
        if self.bare is not None and word in TRUE_WORDS + FALSE_WORDS and not is_number:
            return [self.bare if word in TRUE_WORDS else None]
        if not self.multiple:
            return [text]
        try:
            return shlex.split(text)
        except ValueError as error:
            raise OptionError(f"{self.variable}: {error}", hint="close each quote") from None

    def _read(self, ctx: click.Context, given: Given) -> Any:
        if self.is_flag:
            return given.value
        is_typed = given.level == ValueLevel.COMMAND_LINE
        where = "/".join(self.names) if is_typed else given.place
        try:
            return self.read(str(given.value))
        except PositionError as error:
            if not (isinstance(error, MaskError) and is_typed):  # else the caret shows which text is meant
                error.message = f"{where}: {error.message}"
            raise
        except OptionError as error:
            hint = error.hint or self._find_hint(ctx, str(given.value))
            raise OptionError(f"{where}: {error.message}", hint=hint) from None

    def _find_hint(self, ctx: click.Context, value: str) -> str:
        """Return a hint for a wrong value: the word or the option that is meant, or the help of the verb.

        An option of another tool may have been read as a short option with a value: `-np 4` as `-n p`.
        """
        from ompbind.cli import suggestions  # noqa: PLC0415 - door: a wrong command line

        assert isinstance(ctx, VerbContext)
        verb, options, typed = ctx.command.name or "", ctx.sources.options.values(), f"{self.names[0]}{value}"
        known = [verb, *(name for option in options for name in option.names)]
        for name in (suggestions.find_typed(typed, ctx.typed), (f"{self.long_name}={value}", "")):
            if meant := suggestions.find_option(*name, known):
                return suggestions.make_hint(meant)
        if value.startswith("=") and typed in ctx.typed:
            return f"write {self.names[0]} {value[1:]}"
        if word := suggestions.suggest_word(value, self.words):
            return f"did you mean '{word}'?"
        is_left_out = not self.is_everyday(verb) and any(option.everyday for option in options)
        return f"see 'ompbind {verb} --help{'-all' if is_left_out else ''}'"


class Sources:
    """Where the values of the options of one command line come from, for messages.

    `occurrences` has all occurrences of each option by name, the lowest level first; `effective` the
    occurrences that make the value, or the last occurrence if it resets the option.
    """

    def __init__(self, params: Iterable[click.Parameter]) -> None:
        self.options = {param.name: param for param in params if isinstance(param, Option)}
        self.occurrences: dict[str, tuple[Given, ...]] = {}
        self.effective: dict[str, Sequence[Given]] = {}

    def is_given(self, name: str) -> bool:
        """Return whether the option is given anywhere."""
        return name in self.effective

    def level(self, name: str) -> ValueLevel:
        """Return the level of the value; of a list, the highest."""
        return self.effective[name][-1].level if name in self.effective else ValueLevel.DEFAULT

    def place(self, name: str) -> str:
        """Return the option, variable or key that gives the value; "" by default."""
        return self.effective[name][-1].place if name in self.effective else ""

    def text(self, name: str) -> str:
        """Return the text from which the value was read; "" for a flag, or if there is no value."""
        if name not in self.effective:
            return self.options[name].default_text or ""
        return ",".join(given.value for given in self.effective[name] if isinstance(given.value, str))

    def render(self, name: str) -> str:
        """Return an option as it could be written: its name, and its value if that is a short text.

        If it comes from a variable or a file, the name of the variable or key.
        """
        text = self.text(name)
        if ValueLevel.DEFAULT < self.level(name) < ValueLevel.COMMAND_LINE:
            return self.place(name) + _render_value("=", text)
        return self.options[name].render(text)

    def explain(self, error: OmpbindError) -> None:
        """Replace options in the message of an error by the variables or keys that their values come from.

        A mask that comes from a variable or a file is named before the message, which shows only its text.
        If no option is named, the hint lists the options that may be the cause: they choose CPUs, or the
        message has their value. A second call changes nothing.
        """
        outside: dict[str, str] = {}
        for name, found in self.effective.items():
            if self.level(name) < ValueLevel.COMMAND_LINE and len({given.place for given in found}) == 1:
                outside[name] = self.place(name)
                names = self.options[name].names
                error.message = _replace_name(error.message, names, self.text(name), outside[name])
        if any(place in error.message for place in outside.values()):
            return
        if isinstance(error, MaskError) and "mask" in outside:
            error.message = f"{outside['mask']}: {error.message}"
            return
        causes = []
        for name in outside:
            text = self.text(name)
            shown = text if len(text) > _SHORT else f"'{text}'"
            is_planned = self.options[name].section == CPUS and isinstance(error, PlanError)
            if is_planned or (text and shown in error.message):
                causes.append(self.render(name))
        listed = f"set outside of the command line: {', '.join(causes)}"
        if causes and listed not in error.hint:
            error.hint = "; ".join(filter(None, (error.hint, listed)))


def _replace_name(message: str, names: Sequence[str], value: str, place: str) -> str:
    """Replace all names of an option, and the space before its value."""
    named = "|".join(map(re.escape, ("/".join(names), *names)))
    pattern = rf"(?<![\w-])(?:{named})(?![\w-])(?: ({re.escape(value)})(?![\w-]))?"
    return re.sub(pattern, lambda found: f"{place}={found[1]}" if found[1] else place, message)


def _render_value(separator: str, text: str) -> str:
    """Return a short value as a word for the shell, without secrets; "" for a long or missing value."""
    quoted = shlex.quote(mask_text(text))
    return f"{separator}{quoted}" if 0 < len(text) <= _SHOWN else ""


class VerbContext(click.Context):
    """The context of a verb: also where its values come from, and the configuration files that were read.

    `typed` are the words of its command line, `messages` what the user should know about its options.
    `groups` are the contexts of the groups of a run with several commands; it may be the first of these.
    Another group has the context of its `run`, and maybe a `table` of a configuration file. `find_tables`
    returns the tables of groups in the files that were read, by name. `command_words` are all words after the
    first `--`, also the options and commands of the other groups.
    """

    run: "VerbContext | None" = None
    table: Any = None
    find_tables: Callable[[], Mapping[str, Any]] = dict
    groups: tuple["VerbContext", ...] = ()
    command_words: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    configuration = Configuration()
    messages: tuple[str, ...] = ()

    def __init__(self, command: click.Command, *args: Any, **kwargs: Any) -> None:
        self.run, self.table = kwargs.pop("run", None), kwargs.pop("table", None)
        super().__init__(command, *args, **kwargs)
        self.sources = Sources(command.params)

    def read_leniently(self, **settings: Any) -> click.Context:
        """Read what can be read of the command line without errors, with these `settings` of click."""
        settings |= {"resilient_parsing": True, "ignore_unknown_options": True}
        return self.command.make_context(self.info_name, [*self.typed], parent=self.parent, **settings)

    def find_option(self, word: str) -> click.Option | None:
        """Return the option of the verb that a word spells, alone or with its value; None for other words."""
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        options = (param for param in self.command.params if isinstance(param, click.Option))
        return next((each for each in options if name in (*each.opts, getattr(each, "reset_name", 0))), None)

    def explain(self, error: OmpbindError) -> None:
        """Name in an error where the values of the options of its group come from; see `Sources.explain`."""
        own = (group for group in self.groups if group.params["name"] == error.group)
        next(own, self).sources.explain(error)


def find_settings(params: Iterable[click.Parameter]) -> Mapping[str, Option]:
    """Return the options with a variable by key: files can contain them, but not choose file and preset."""
    found = (param for param in params if isinstance(param, Option) and param.has_variable)
    return {option.key: option for option in found if option.section != CONFIGURATION}
