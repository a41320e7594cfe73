"""What every verb's command has: options in sections, and an EXAMPLES section at the end of --help."""

from collections.abc import Callable, Sequence
from typing import Any

import click


class SectionedOption(click.Option):
    """An option that is listed under a section of its own in --help."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class Verb(click.Command):
    """A command with sections of options and examples, each a (what it does, command line) pair.

    One that takes a command takes all words behind its own options as that.
    """

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.allow_interspersed_args = all(param.name != "cmd" for param in self.params)

    def make_parser(self, ctx: click.Context) -> Any:
        """Make the parser, which finds short options where it looks first: among the long ones.

        There it would else compare each with all others, for a suggestion: 2 ms of a run, difflib included.
        """
        parser = super().make_parser(ctx)
        parser._long_opt.update(parser._short_opt)
        return parser

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section in the order in which sections first appear."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                section = getattr(param, "section", "Help")
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        with formatter.section("EXAMPLES"):
            for what, line in self.examples:
                formatter.write_text(f"{what}:")
                formatter.write(f"{'':>{formatter.current_indent}}  {line}\n")


def option(section: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return a click option decorator for a section of --help."""
    return click.option(*names, cls=SectionedOption, section=section, **settings)


def format_option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return the decorator for --format of a verb that prints one thing; the first name is the default."""
    settings = {"help": "How to print it.", "default": names[0], "show_default": True, **settings}
    return option("Options", "--format", "format_", type=click.Choice(names), **settings)


TABLE_OR_JSON = format_option("table", "json")
