"""What the help and the reference say about an option."""

from __future__ import annotations

from ompbind.cli.options.option import Option


def render_metavar(option: Option) -> str:
    """Return what stands for the value in the help, "" for a flag."""
    return "" if option.flag else option.metavar or "|".join(option.words)


def render_help(option: Option) -> str:
    """Return the help of an option, with its words, its names and its default."""
    marked = (f"{word} (default)" if word == option.default else word for word in option.words)
    text = option.help.replace("{words}", ", ".join(marked))
    if option.list_names:
        text = text.replace("{names}", option.list_names())
    marks_default = "{words}" in option.help
    default = option.default_help or ("" if marks_default else option.default)
    return f"{text} [default: {default}]" if default else text
