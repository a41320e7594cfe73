"""The click command of a verb: help, completion, checks and errors.

`--help` of a verb with many options shows only the `everyday` options, so that it fits on a screen.
`--help-all` shows all options. A verb without everyday options has few, and `--help` shows all of them.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import click

from ompbind.cli import END, PLANNING, PREFIX, SEPARATOR
from ompbind.cli.checks import Check, check_options
from ompbind.cli.console import HELP_SHOWN, make_help_option, print_message
from ompbind.cli.option import Complete, Option, VerbContext, make_completion
from ompbind.cli.options import find_options, find_unknown_variables
from ompbind.errors import OmpbindError, OptionError

HELP = "Help"  # the section of the options that show help

SHORT_EXAMPLES = 3  # examples that the short help shows: the first of all
_DASHES = ("‐", "‑", "‒", "–", "—", "―", "−")
_RESETS = (
    "--no-NAME resets an option to its default. Options can also be given as variables: OMPBIND_NAME;"
    " the command line takes precedence."
)
METAVARS = {
    "command": "CMD...", "optional command": "[-- CMD...]", "targets": "[PID|RUN]...", "runs": "RUN...",
    "shell": "bash|zsh|fish", "topic": "[VERB|PAGE|OPTION]",
}  # fmt: skip
"""What stands for the words after the options in the help."""


def make_format_option(verb: str, *words: str, section: str = "Options", detail: str = "") -> Option:
    """Return --format of a verb that prints one thing; the first word is the default."""
    return Option(
        "--format",
        section=section,
        verbs=(verb,),
        words=words,
        default=words[0],
        everyday=section != "Options",
        help=f"Output format: {{words}}{detail}",
    )


class Verb(click.Command):
    """The command of a verb.

    - `run`: does the work, and returns the exit code
    - `help`: its description, without it the docstring of `run`; `summary`: the line in the list of verbs
    - `page`: the page of the documentation about it, "running"
    - `examples`: pairs of a description and a command line; `details` only the complete help shows
    - `words`: which words follow the options, a key of METAVARS; `complete_word` completes them
    - `prints_warnings`: returns whether this process prints warnings about options; only one of the processes
      that a launcher has started prints them
    - `refuse`: called for a wrong command line, with a context that has what could be read of it
    - `checks`: which of its own options have no effect because of others
    """

    context_class = VerbContext

    def __init__(
        self,
        name: str,
        run: Callable[[VerbContext], int],
        *,
        help: str = "",
        summary: str,
        page: str,
        examples: tuple[tuple[str, str], ...],
        details: str = "",
        words: str = "",
        complete_word: Complete | None = None,
        prints_warnings: Callable[[VerbContext], bool] = lambda _: True,
        refuse: Callable[[Any], None] | None = None,
        checks: Sequence[Check] = (),
    ) -> None:
        self.options = find_options(name)
        params: list[click.Parameter] = [*self.options]
        if words:

            def complete(ctx: click.Context, param: click.Parameter, text: str) -> list[Any]:
                if complete_word is None:
                    return [make_completion(text, type="file")]
                return [make_completion(word) for word in complete_word(text) if word.startswith(text)]

            argument: dict[str, Any] = {"nargs": -1, "metavar": METAVARS[words], "type": click.UNPROCESSED}
            params.append(click.Argument(["words"], shell_complete=complete, **argument))
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
        self.ignore_unknown_options = words == "topic"  # it may be an option of another verb
        self.run, self.prints_warnings, self.refuse, self.checks = run, prints_warnings, refuse, checks
        self.page, self.examples, self.details, self.words = page, examples, details, words

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and check what its options have to do with each other."""
        assert isinstance(ctx, VerbContext)
        ctx.typed = tuple(args)  # click removes words from the list
        try:
            if "command" not in self.words and not ctx.resilient_parsing:
                _check_dashes(args)
            rest = super().parse_args(ctx, args)
            if ctx.run:
                from ompbind.cli.groups import adopt_run_options  # noqa: PLC0415 - door: groups

                adopt_run_options(ctx, ctx.run)
            if ctx.resilient_parsing:
                return rest
            ctx.messages = tuple(self._check(ctx))
            may_have = {"name", "group"} & ctx.sources.effective.keys() or SEPARATOR in ctx.typed
            if may_have and not ctx.run and "name" in ctx.params:
                from ompbind.cli.groups import parse_groups  # noqa: PLC0415 - door: groups

                ctx.groups = parse_groups(self, ctx)
                of_groups = (text for group in ctx.groups for text in group.messages)
                ctx.messages = tuple(dict.fromkeys((*ctx.messages, *of_groups)))
            return rest
        except (click.UsageError, OmpbindError) as error:
            from ompbind.cli.register import check_hint  # noqa: PLC0415 - door: a wrong command line

            check_hint(error, ctx)
            if self.refuse and not ctx.run:
                self.refuse(ctx.read_leniently())
            raise

    def _check(self, ctx: VerbContext) -> list[str]:
        """Check a command line, and return the messages about it: --quiet hides warnings, --verbose and
        `config` show what gave way. Raises OptionError without a command, and RequestError for options that
        have no effect together.
        """
        values = ctx.params
        words = values["words"] if "command" in self.words else ()
        late: Sequence[str] = words if ctx.typed[-len(words) - 1 :][:1] != (END,) else ()
        _check_dashes(late[:1])
        # files, a process that exists, or commands of a file
        needs_none = values.get("show") or values.get("task_prolog") or values.get("group")
        if self.words == "command" and not values["words"] and not needs_none:
            where = "after the image" if os.getpid() == 1 else "after --"  # the entry point ends with --
            hint = f"write it {where}; see 'ompbind {self.name} --help'"
            raise OptionError("the command to start is missing", hint=hint)
        found, replaced = check_options(ctx, self.checks)
        warnings = [*ctx.configuration.warnings, *found]
        for word in () if any(word.endswith("ompbind") for word in late) else late:
            option = ctx.find_option(word)
            names = option.names if isinstance(option, Option) and (option.own or self.name == "plan") else ()
            if word.startswith(names if self.name == "plan" else names[-1:]):
                text = f"{word} is after the command, so it is an option of {late[0]} (write options of"
                warnings.append(f"{text} ompbind before the command; -- there hides this warning)")
        if self.name in PLANNING:
            for name, hint in find_unknown_variables(os.environ):
                warnings.append("; ".join(filter(None, (f"{name} is not a variable of ompbind", hint))))
        texts = [] if values.get("quiet") else [f"warning: {text}" for text in warnings]
        return [*texts, *(replaced if values.get("verbose") or self.name == "config" else ())]

    def invoke(self, ctx: click.Context) -> int:
        """Print the messages about the options, run the verb, and return its exit code."""
        assert isinstance(ctx, VerbContext)
        try:
            if ctx.messages and self.prints_warnings(ctx):
                for text in ctx.messages:
                    print_message(text)
            return self.run(ctx)
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
        """Write the options by sections, as these first appear; all texts begin in the same column."""
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
            if not self._is_short(ctx) or section == next(iter(sections)):
                formatter.write_paragraph()
            formatter.write_heading(section)
            with formatter.indentation():
                formatter.write_dl([(names.ljust(width), text) for names, text in records])
        if self.name in PLANNING and not self._is_short(ctx):
            formatter.write_paragraph()
            formatter.write_text(_RESETS)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, in the short help with a line each where they fit, and where to read more."""
        short = self._is_short(ctx)
        examples = self.examples[:SHORT_EXAMPLES] if short else self.examples
        width = max((len(line) for _, line in examples), default=0)
        rows = [f"{line.ljust(width)}  {description}" for description, line in examples]
        with formatter.section("Examples"):
            space = " " * formatter.current_indent
            fits = short and max(map(len, rows), default=0) + len(space) <= formatter.width
            for (description, line), row in zip(examples, rows, strict=True):
                if not fits:
                    formatter.write_text(f"{description}:")
                formatter.write(f"{space}{row if fits else f'  {line}'}\n")
        all_options = f"All options: '{ctx.command_path} --help-all'. " if short else ""
        formatter.write_paragraph()
        formatter.write_text(f"{all_options}More: ompbind help {self.page}")

    def _is_short(self, ctx: click.Context) -> bool:
        return self.has_short_help and ctx.meta.get(HELP_SHOWN) != "help_all"

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return completions; options that reset others only after --no."""
        found = super().shell_complete(ctx, incomplete)
        by_name = {name: option for option in self.options for name in option.names}
        for item in found:
            if item.value in by_name:
                item.help = by_name[item.value].render_help()
        if self.ignore_unknown_options:  # click completes an argument only if no option is begun
            found += self.params[0].shell_complete(ctx, incomplete)
        resets = (option.reset_name for option in self.options if incomplete.startswith("--no"))
        return found + [make_completion(name) for name in resets if name.startswith(incomplete)]


def _check_dashes(words: Sequence[str]) -> None:
    """Raise OptionError for an option with a dash: editors make dashes of hyphens."""
    for word in words:
        if word.startswith(_DASHES):
            name = word.lstrip("".join(_DASHES) + "-")
            hint = f"write {'--' if name[1:] else '-'}{name}"
            raise OptionError(f"{word} begins with a dash ({word[0]}), not with a hyphen (-)", hint=hint)
