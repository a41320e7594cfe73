"""The click command of a verb: help, completion, checks and errors.

`--help` of a verb with many options shows only the `everyday` options, so that it fits on a screen.
`--help-all` shows all options. A verb without everyday options has few, and `--help` shows all of them.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import click

from ompbind.cli import PLANNING, PREFIX
from ompbind.cli.checks import Check, check_options
from ompbind.cli.console import HELP_SHOWN, make_help_option, print_message
from ompbind.cli.option import Complete, Option, VerbContext, make_completion
from ompbind.cli.options import find_options, find_unknown_variables
from ompbind.cli.readers import one_of
from ompbind.errors import OmpbindError, OptionError

HELP = "Help"
"""The section of the options that show help."""

SHORT_EXAMPLES = 3  # examples that the short help shows: the first of all
_RESETS = (
    "--no-NAME resets an option to its default. Options can also be given as variables: OMPBIND_NAME;"
    " the command line takes precedence."
)
METAVARS = {
    "command": "CMD...",
    "optional command": "[-- CMD...]",
    "targets": "[PID|RUN]...",
    "runs": "RUN...",
    "shell": "bash|zsh|fish",
    "verb": "[VERB]",
}
"""What stands for the words after the options in the help."""

WordsAfter = Literal["command", "optional command", "targets", "runs", "shell", "verb", "none"]
"""The words after the options: a command, a command that may be missing, processes and runs, and so on."""


def make_format_option(verb: str, *words: str, section: str = "Options", detail: str = "") -> Option:
    """Return --format of a verb that prints one thing; the first word is the default."""
    return Option(
        "--format",
        section=section,
        verbs=(verb,),
        read=one_of(words),
        words=words,
        default=words[0],
        everyday=section != "Options",
        help=f"Output format: {{words}}{detail}",
    )


class Verb(click.Command):
    """The command of a verb.

    - `run`: does the work; returns the exit code, or None for 0
    - `help`: its description, without it the docstring of `run`; `summary`: the line in the list of verbs
    - `page`: the page of the documentation about it, "running.md"
    - `examples`: pairs of a description and a command line; `details` only the complete help shows
    - `words`: which words follow the options, `complete_word` completes them
    - `prints_warnings`: returns whether this process prints warnings about options; only one of the processes
      that a launcher has started prints them
    - `refuse`: called with the words after the verb if they are wrong
    - `checks`: which of its own options have no effect because of others
    """

    context_class = VerbContext

    def __init__(
        self,
        name: str,
        run: Callable[[Any], int | None],
        *,
        help: str = "",
        summary: str,
        page: str,
        examples: tuple[tuple[str, str], ...],
        details: str = "",
        words: WordsAfter = "none",
        complete_word: Complete | None = None,
        prints_warnings: Callable[[click.Context], bool] = lambda _: True,
        refuse: Callable[[Sequence[str]], None] | None = None,
        checks: Sequence[Check] = (),
    ) -> None:
        self.options = find_options(name)
        params: list[click.Parameter] = [*self.options]
        if words != "none":
            params.append(_make_argument(words, complete_word))
        self.has_short_help = any(option.is_everyday(name) for option in self.options)
        if self.has_short_help:
            params.append(make_help_option("--help-all", help="Show all options and examples and exit."))
        params.append(make_help_option())
        super().__init__(
            name,
            context_settings={"auto_envvar_prefix": PREFIX.rstrip("_")},
            params=params,
            help=help or run.__doc__ or summary,  # python -OO has no docstrings
            short_help=summary,
            options_metavar="[OPTIONS] --" if words == "command" else "[OPTIONS]",
            add_help_option=False,
        )
        self.allow_interspersed_args = "command" not in words
        self.run = run
        self.page = page
        self.examples = examples
        self.details = details
        self.words = words
        self.prints_warnings = prints_warnings
        self.refuse = refuse
        self.checks = checks

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and check what its options have to do with each other."""
        assert isinstance(ctx, VerbContext)
        ctx.typed = tuple(args)  # click removes words from the list
        try:
            return self._parse(ctx, args)
        except (click.UsageError, OmpbindError):
            if self.refuse and not ctx.run:
                self.refuse(ctx.typed)
            raise

    def _parse(self, ctx: VerbContext, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if ctx.run or ctx.params.get("name") or ctx.params.get("group"):
            from ompbind.cli.groups import adopt_run_options, parse_groups  # noqa: PLC0415 - door: groups

            if ctx.run:
                adopt_run_options(ctx, ctx.run)
            elif not ctx.resilient_parsing:
                ctx.messages = tuple(self._check(ctx))
                ctx.groups = parse_groups(self, ctx)
                of_groups = (text for group in ctx.groups for text in group.messages)
                ctx.messages = tuple(dict.fromkeys((*ctx.messages, *of_groups)))
                return rest
        if not ctx.resilient_parsing:
            ctx.messages = tuple(self._check(ctx))
        return rest

    def _check(self, ctx: VerbContext) -> list[str]:
        """Check a command line, and return the messages about it.

        --quiet hides warnings, also of variables that ompbind does not know. --verbose and `config` show what
        gave way. Raises OptionError without a command, and RequestError for options that have no effect
        together.
        """
        values = ctx.params
        # files, a process that exists, or commands of a file
        needs_none = values.get("show") or values.get("task_prolog") or values.get("group")
        if self.words == "command" and not values["words"] and not needs_none:
            where = "after the image" if os.getpid() == 1 else "after --"  # the entry point ends with --
            hint = f"write it {where}; see 'ompbind {self.name} --help'"
            raise OptionError("the command to start is missing", hint=hint)
        found, replaced = check_options(ctx, self.checks)
        warnings = [*ctx.configuration.warnings, *found]
        if self.name in PLANNING:
            for name, hint in find_unknown_variables(os.environ):
                warnings.append(f"{name} is not a variable of ompbind" + (f"; {hint}" if hint else ""))
        texts = [] if values.get("quiet") else [f"warning: {text}" for text in warnings]
        return [*texts, *(replaced if values.get("verbose") or self.name == "config" else ())]

    def invoke(self, ctx: click.Context) -> int:
        """Print the messages about the options, run the verb, and return its exit code.

        An error names the variable or the file that a wrong value comes from.
        """
        assert isinstance(ctx, VerbContext)
        try:
            if ctx.messages and self.prints_warnings(ctx):
                for text in ctx.messages:
                    print_message(text)
            return self.run(ctx) or 0
        except OmpbindError as error:
            ctx.explain(error)
            raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description; the details follow in the complete help."""
        super().format_help_text(ctx, formatter)
        if self.details and not self._is_short(ctx):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(self.details)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section in the order in which sections first appear.

        The help texts of all sections begin in the same column.
        """
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            is_everyday = isinstance(param, Option) and param.is_everyday(str(self.name))
            if record is not None and (is_everyday or not self._is_short(ctx)):
                section = param.section if isinstance(param, Option) else HELP
                sections.setdefault(section, []).append(record)
        if "Options" in sections:
            sections["Options"] += sections.pop(HELP, [])
        width = max((len(names) for records in sections.values() for names, _ in records), default=0)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl([(names.ljust(width), text) for names, text in records])
        if self.name in PLANNING and not self._is_short(ctx):
            formatter.write_paragraph()
            formatter.write_text(_RESETS)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, and where to read more.

        Examples have a line each in the short help, where they fit, otherwise two lines.
        """
        short = self._is_short(ctx)
        examples = self.examples[:SHORT_EXAMPLES] if short else self.examples
        width = max((len(line) for _, line in examples), default=0)
        rows = [f"{line.ljust(width)}  {description}" for description, line in examples]
        with formatter.section("Examples"):
            if short and max(map(len, rows), default=0) + formatter.current_indent <= formatter.width:
                formatter.write("".join(f"{'':>{formatter.current_indent}}{row}\n" for row in rows))
            else:
                for description, line in examples:
                    formatter.write_text(f"{description}:")
                    formatter.write(f"{'':>{formatter.current_indent}}  {line}\n")
        all_options = f"All options: '{ctx.command_path} --help-all'. " if short else ""
        formatter.write_paragraph()
        formatter.write_text(f"{all_options}Documentation: docs/{self.page}")

    def _is_short(self, ctx: click.Context) -> bool:
        return self.has_short_help and ctx.meta.get(HELP_SHOWN) != "help_all"

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return completions; options that reset others only after --no."""
        found = super().shell_complete(ctx, incomplete)
        for option in self.options:
            for item in found:
                if item.value in option.names:
                    item.help = option.render_help()
        if not incomplete.startswith("--no"):
            return found
        resets = (option.reset_name for option in self.options)
        return found + [make_completion(name) for name in resets if name.startswith(incomplete)]


def _make_argument(words: WordsAfter, complete: Complete | None) -> click.Argument:
    """Return the words after the options."""

    def complete_word(ctx: click.Context, param: click.Parameter, text: str) -> list[Any]:
        if complete is None:
            return [make_completion(text, type="file")]
        return [make_completion(word) for word in complete(text) if word.startswith(text)]

    return click.Argument(
        ["words"],
        nargs=-1,
        metavar=METAVARS[words],
        type=click.UNPROCESSED,
        shell_complete=complete_word,
    )
