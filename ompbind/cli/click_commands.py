"""The commands of click, made from verbs and their options: help, completion and errors.

Click only splits the command line into occurrences of options; their values are read in one place for all
sources. `--help` of a verb with many options shows only the `everyday` options, so that it fits on a screen.
`--help-all` shows all options. A verb without everyday options has few, and `--help` shows all of them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

from ompbind.cli.options.option import CommandLine, Given, Option, make_given
from ompbind.cli.options.option_help import render_help, render_metavar
from ompbind.cli.options.values import FindKeys, Values
from ompbind.cli.usage_errors import explain_usage_error
from ompbind.cli.verb import Verb, call_verb, refuse
from ompbind.cli.verbs import PLANNING

HELP = "Help"
"""The section of the options that show help."""

SHORT_EXAMPLES = 3  # examples that the short help shows: the first of all
_SHOW_ALL = "ompbind.help_all"  # the key in the context of click: --help-all was given
_RESETS = (
    "--no-NAME resets an option to its default. Options can also be given as variables: OMPBIND_NAME;"
    " the command line takes precedence."
)
METAVARS = {
    "command": "CMD...",
    "optional command": "[-- CMD...]",
    "targets": "[PID|RUN]...",
    "shell": "bash|zsh|fish",
    "verb": "[VERB]",
}
"""What stands for the words after the options in the help."""


class ClickOption(click.Option):
    """An option of the table; its value is the tuple of its occurrences."""

    def __init__(self, option: Option) -> None:
        # to click, `is_flag=False` means that the value is optional
        kind: dict[str, Any] = {"is_flag": True} if option.flag else {}
        if option.bare is not None:
            kind = {"is_flag": False, "flag_value": option.bare}
        super().__init__(
            [*option.names, option.name],
            help=render_help(option),
            metavar=render_metavar(option) or None,
            **kind,
        )
        self.option = option

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add the option, and the option that resets it."""
        if self.option.flag:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append_const", const=True)
        else:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append")
        reset = [self.option.reset_name]
        parser.add_option(obj=self, opts=reset, dest=self.name, action="append_const", const=None)

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> tuple[Any, list[str]]:
        """Keep the occurrences of the option."""
        ctx.params[self.name or ""] = tuple(map(self._make_given, opts.get(self.name, ())))
        return None, args

    def _make_given(self, value: Any) -> Given:
        """Make an occurrence; click has a marker of its own for an optional value that is not given."""
        known = value is None or isinstance(value, bool | str)
        return make_given(self.option, value if known else self.option.bare)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the names and the help; an optional value `[=VALUE]` follows its option without a space."""
        metavar = render_metavar(self.option)
        space = " " if metavar and not metavar.startswith("[=") else ""
        return f"{', '.join(self.opts)}{space}{metavar}", render_help(self.option)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions of the value."""
        complete = self.option.complete
        if isinstance(complete, str):
            return [CompletionItem(incomplete, type=complete)]
        words = self.option.words if complete is None else complete(incomplete)
        found = [CompletionItem(word) for word in words if word.startswith(incomplete)]
        return found or ([CompletionItem(incomplete, type="file")] if complete else [])


class ClickVerb(click.Command):
    """The click command of a verb; `find_keys` returns the keys of configuration files."""

    def __init__(self, verb: Verb, options: Iterable[Option], find_keys: FindKeys) -> None:
        self.verb = verb
        self.description = verb.describe()
        self.find_keys = find_keys
        self.table_options = [ClickOption(option) for option in options]
        params: list[click.Parameter] = [*self.table_options]
        if verb.words != "none":
            params.append(_make_argument(verb))
        self.has_short_help = any(param.option.is_everyday(verb.name) for param in self.table_options)
        if self.has_short_help:
            params.append(_make_help_all())
        super().__init__(
            verb.name,
            params=params,
            help=self.description.help,
            short_help=self.description.summary,
            options_metavar="[OPTIONS] --" if verb.words == "command" else "[OPTIONS]",
        )
        self.allow_interspersed_args = "command" not in verb.words

    def make_parser(self, ctx: click.Context) -> Any:
        """Make the parser, which finds short options where it searches first: among the long ones.

        Otherwise click compares each with all others for a suggestion, which takes 2 ms with difflib.
        """
        parser = super().make_parser(ctx)
        parser._long_opt.update(parser._short_opt)
        return parser

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the command line; the verb handles a usage error, which is raised."""
        given = list(args)  # click removes words from the list
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            if self.verb.refuse:
                self._refuse(given, error)
            raise

    def _refuse(self, args: list[str], error: click.UsageError) -> None:
        """Let the verb handle an error, with the options as far as they can be read."""
        is_separated = "--" in args
        end = args.index("--") if is_separated else len(args)
        context = click.Context(
            self,
            resilient_parsing=True,  # without errors
            ignore_unknown_options=True,
            allow_interspersed_args=is_separated,
        )
        with context:
            self.parse_args(context, args[:end])
        line = self.make_line(context)
        line = line.replace(words=tuple(args[end + 1 :])) if is_separated else line
        refuse(self.verb, self._make_values(line), line, explain_usage_error(error))

    def invoke(self, ctx: click.Context) -> int:
        """Run the verb and return its exit code."""
        line = self.make_line(ctx)
        return call_verb(self.verb, self._make_values(line), line)

    def _make_values(self, line: CommandLine) -> Values:
        """Make the values of the options, which are still to be read."""
        options = [param.option for param in self.table_options]
        return Values(self.verb.name, options, line.words, self.find_keys)

    def make_line(self, ctx: click.Context) -> CommandLine:
        """Return the command line that was parsed."""
        givens = (given for param in self.table_options for given in ctx.params.get(param.name or "", ()))
        return CommandLine(givens=tuple(givens), words=tuple(ctx.params.get("words") or ()))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description; the details follow in the complete help."""
        super().format_help_text(ctx, formatter)
        if self.description.details and not self._is_short(ctx):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(self.description.details)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section in the order in which sections first appear.

        The help texts of all sections begin in the same column.
        """
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None and (self._is_everyday(param) or not self._is_short(ctx)):
                section = param.option.section if isinstance(param, ClickOption) else HELP
                sections.setdefault(section, []).append(record)
        if "Options" in sections:
            sections["Options"] += sections.pop(HELP, [])
        width = max((len(names) for records in sections.values() for names, _ in records), default=0)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl([(names.ljust(width), text) for names, text in records])
        if self.verb.name in PLANNING and not self._is_short(ctx):
            formatter.write_paragraph()
            formatter.write_text(_RESETS)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples: a line for each in the short help, where they fit, otherwise two lines."""
        short = self._is_short(ctx)
        examples = self.description.examples[:SHORT_EXAMPLES] if short else self.description.examples
        rows = list(_align(examples))
        with formatter.section("Examples"):
            if short and max(map(len, rows), default=0) + formatter.current_indent <= formatter.width:
                formatter.write("".join(f"{'':>{formatter.current_indent}}{row}\n" for row in rows))
            else:
                for description, line in examples:
                    formatter.write_text(f"{description}:")
                    formatter.write(f"{'':>{formatter.current_indent}}  {line}\n")
        if short:
            formatter.write(f"\n'{ctx.command_path} --help-all' shows all options.\n")

    def _is_everyday(self, param: click.Parameter) -> bool:
        return isinstance(param, ClickOption) and param.option.is_everyday(self.verb.name)

    def _is_short(self, ctx: click.Context) -> bool:
        return self.has_short_help and not ctx.meta.get(_SHOW_ALL)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions; options that reset others only after --no."""
        found = super().shell_complete(ctx, incomplete)
        if not incomplete.startswith("--no"):
            return found
        resets = (param.option.reset_name for param in self.table_options)
        return found + [CompletionItem(name) for name in resets if name.startswith(incomplete)]


def _make_argument(verb: Verb) -> click.Argument:
    """Return the words after the options."""
    complete = verb.complete_word

    def complete_word(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
        if complete is None:
            return [CompletionItem(text, type="file" if ctx.params.get("words") else "command")]
        return [CompletionItem(word) for word in complete(text) if word.startswith(text)]

    return click.Argument(
        ["words"],
        nargs=-1,
        metavar=METAVARS[verb.words],
        type=click.UNPROCESSED,
        shell_complete=complete_word,
    )


def _align(examples: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each example: the command lines in one column, the descriptions in the next."""
    pairs = list(examples)
    width = max((len(line) for _, line in pairs), default=0)
    for description, line in pairs:
        yield f"{line.ljust(width)}  {description}"


def _make_help_all() -> click.Option:
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help="Show all options and examples and exit.",
    )


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOW_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
