"""What all verbs have in common: options in sections, converters for their values, help and examples.

`--help` of a verb with many options shows only the `everyday` options, so that it fits on a screen.
`--help-all` shows all options. A verb without everyday options has few, and `--help` shows all of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from ompbind.cli.console import print_message
from ompbind.cli.option_rules import Rule, apply_rules

HELP = "Help"
"""The section of the options that show help."""

SHORT_EXAMPLES = 3  # examples that the short help shows: the first of all
_SHOW_ALL = "ompbind.help_all"  # the key in the context of click: --help-all was given


class SectionedOption(click.Option):
    """An option in a section of the help; an `everyday` option is shown by --help too.

    `rule` says when the option has no effect, because of other options.
    """

    def __init__(
        self,
        *args: Any,
        section: str = "Options",
        everyday: bool = False,
        rule: Rule | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.section = section
        self.everyday = everyday
        self.rule = rule

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the names and the help; an optional value `[=VALUE]` follows its option without a space."""
        record = super().get_help_record(ctx)
        return record and (record[0].replace(" [=", "[="), record[1])

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return what click adds to the help text, without ranges such as `x>=1` (click 8.2 and later)."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


class Verb(click.Command):
    """A command with sections of options and examples, each a (description, command line) pair.

    `details` is text that only the complete help shows. A verb with an argument `cmd` takes all words after
    its own options as the command. `is_reporting` returns whether this process prints warnings about options:
    one of several that a launcher has started.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[tuple[str, str]] = (),
        details: str = "",
        is_reporting: Callable[[], bool] = lambda: True,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.is_reporting = is_reporting
        self.examples = tuple(examples)
        self.details = details
        self.allow_interspersed_args = all(param.name != "cmd" for param in self.params)
        self._has_short_help = any(map(_is_everyday, self.params))
        if self._has_short_help:
            self.params.append(_make_help_all())

    def make_parser(self, ctx: click.Context) -> Any:
        """Make the parser, which finds short options where it searches first: among the long ones.

        Otherwise click compares each with all others for a suggestion, which takes 2 ms with difflib.
        """
        parser = super().make_parser(ctx)
        parser._long_opt.update(parser._short_opt)
        return parser

    @property
    def rules(self) -> list[tuple[click.Parameter, Rule]]:
        """The options that have a rule, with their rules."""
        options = [param for param in self.params if isinstance(param, SectionedOption)]
        return [(option, option.rule) for option in options if option.rule]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb, after the rules of its options."""
        self.check_options(ctx)
        return super().invoke(ctx)

    def check_options(self, ctx: click.Context) -> None:
        """Apply the rules of the options; raises RequestError for options that have no effect together.

        --quiet hides the warnings. --verbose, and --explain of `plan`, show what gave way.
        """
        found = apply_rules(ctx, self.rules)
        warnings = () if ctx.params.get("quiet") else found.warnings
        explains = ctx.params.get("verbose") or ctx.params.get("explain")
        texts = (*(f"warning: {text}" for text in warnings), *(found.replaced if explains else ()))
        for text in texts if texts and self.is_reporting() else ():
            print_message(text)

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
            if record is not None and (_is_everyday(param) or not self._is_short(ctx)):
                sections.setdefault(getattr(param, "section", HELP), []).append(record)
        width = max((len(names) for records in sections.values() for names, _ in records), default=0)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl([(names.ljust(width), text) for names, text in records])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples: a line for each in the short help, where they fit, otherwise two lines."""
        short = self._is_short(ctx)
        examples = self.examples[:SHORT_EXAMPLES] if short else self.examples
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

    def _is_short(self, ctx: click.Context) -> bool:
        return self._has_short_help and not ctx.meta.get(_SHOW_ALL)


def _is_everyday(param: click.Parameter) -> bool:
    return isinstance(param, SectionedOption) and param.everyday


def _align(examples: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each example: the command lines in one column, the descriptions in the next."""
    pairs = list(examples)
    width = max((len(line) for _, line in pairs), default=0)
    for description, line in pairs:
        yield f"{line.ljust(width)}  {description}"


def _make_help_all() -> SectionedOption:
    return SectionedOption(
        ["--help-all"],
        section=HELP,
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


def option(section: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return a click option decorator for a section of the help."""
    return click.option(*names, cls=SectionedOption, section=section, **settings)


def format_option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return the decorator for --format of a verb that prints one thing; the first name is the default."""
    settings = {"help": "Output format", "default": names[0], "show_default": True, **settings}
    return option("Options", "--format", "format_", type=click.Choice(names), **settings)


TABLE_OR_JSON = format_option("table", "json")


def count_or(*words: str) -> Callable[[str], int | str]:
    """Return a converter for click: a whole number of at least 1, or one of some words."""

    def convert(text: str) -> int | str:
        if text in words:
            return text
        number = _read_number(text, 1)
        if number is not None:
            return number
        wanted = f"{', '.join(words)} or a whole number of at least 1"
        raise click.BadParameter(f"{_quote(text)} is wrong: write {wanted}")

    return convert


def at_least(minimum: int) -> Callable[[str], int]:
    """Return a converter for click: a whole number that is not below a minimum."""

    def convert(text: str) -> int:
        number = _read_number(text, minimum)
        if number is None:
            raise click.BadParameter(f"{_quote(text)} is not a whole number of at least {minimum}")
        return number

    return convert


def _read_number(text: str, minimum: int) -> int | None:
    """Return the number in a text of ASCII digits, None for other texts and for a number below a minimum.

    Raises click.BadParameter for a number that is larger than any that OpenMP reads.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    if len(text) > _DIGITS:
        raise click.BadParameter(f"{_quote(text)} is too large; the limit is {'9' * _DIGITS}")
    return int(text) if int(text) >= minimum else None


_DIGITS = 9  # digits of a number at most: OpenMP reads numbers of 31 bits


def _quote(text: str) -> str:
    """Return a text in quotes, cut if it is long."""
    from ompbind.report.text import clip  # late: only an error needs it

    return repr(clip(text))


def seconds(text: str) -> float:
    """Read a time for click as `timeout` and `sleep` do: a number, or a number followed by s, m, h or d."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    number = text[:-1] if unit else text
    whole, _, fraction = number.partition(".")
    if not (whole + fraction).isdigit() or not number.isascii() or len(number) > 12:
        raise click.BadParameter(
            f"{_quote(text)} is not a time: write seconds, or for example 90s, 5m or 1.5h"
        )
    return float(number) * (unit or 1)


def complete_files(ctx: click.Context, param: click.Parameter, text: str) -> list[Any]:
    """Let the shell complete file names."""
    from click.shell_completion import CompletionItem  # late: only completion needs it

    return [CompletionItem(text, type="file")]
