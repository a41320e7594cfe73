"""`ompbind help`: a verb, a page of the documentation, an option, or the places of pages that contain words.

The pages are docs/*.md: a clone reads them there, and what is installed has them in ompbind/pages/.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, partialmethod
from importlib.resources import files
from io import StringIO
from itertools import chain

import click

from ompbind.cli import VERBS, suggestions
from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.main import run_words
from ompbind.cli.option import VerbContext
from ompbind.cli.options import find_options
from ompbind.cli.verb import Verb
from ompbind.errors import OptionError
from ompbind.report.text import Column, render_paragraph, render_table
from ompbind.text import suggest_name

EXAMPLES = (
    ("The options of run", "ompbind help run"),
    ("All pages", "ompbind help pages"),
    ("A page", "ompbind help tutorial"),
    ("An option", "ompbind help --mask"),
    ("Where pages mention words", "ompbind help search cpu quota"),
)

LIST, SEARCH = "pages", "search"  # docs/README.md is the list of pages
AROUND = 60  # characters that are shown on each side of a word that is found

_ROW = re.compile(r"^\| .+ \(`ompbind help ([\w-]+)`\) \| (.+) \|$", re.M)  # of the list of pages
_LINK = re.compile(r"(!?)\[((?:[^]\[]|\[[^]]*\])*)\]\((?!https?:)([^)#]*)[^)]*\)")
_PART = re.compile(r"\n(?=\n|#|```|\||[*-] |\d+\. )")  # between paragraphs, rows and items of a page


def read_pages() -> dict[str, str]:
    """Read the text of each page; a link becomes its text and the command that shows the page."""
    installed = files("ompbind") / "pages"
    directory = installed if installed.is_dir() else files("ompbind") / ".." / "docs"
    texts = {path.name[:-3]: path.read_text("utf-8") for path in directory.iterdir() if ".md" in path.name}
    texts[LIST] = texts.pop("README")
    return {name: _LINK.sub(_render_link, re.sub("<!--.*?-->\n", "", texts[name])) for name in sorted(texts)}


def _render_link(link: re.Match[str]) -> str:
    picture, text, target = link.groups()
    page = re.fullmatch(r"([\w-]+)\.md", target.replace("README", LIST))
    return f"(picture: {text})" if picture else f"{text} (`ompbind help {page[1]}`)" if page else text


def show_help(ctx: VerbContext) -> int:
    """Show the help of ompbind or of a verb, a page of the documentation, or an option.

    'help pages' lists the pages; 'help search WORD' lists the places of pages that contain all the words.
    """
    words: tuple[str, ...] = ctx.params["words"]
    if not words or (len(words) == 1 and words[0] in VERBS):
        return run_words([*words, "--help"])
    pages, shown, width = read_pages(), " ".join(words), read_screen().text_width
    topic = shown.replace(" ", "-").lower().removeprefix("docs/").removesuffix(".md")
    if words[-1].startswith("-"):
        verbs = words[:1] if words[0] in VERBS else VERBS
        write_stdout("\n\n".join(_describe_option(words[-1].partition("=")[0], verbs, pages, width)))
    elif words[0] == SEARCH:
        _show("\n".join(_search(words[1:], pages)))
    elif topic == LIST:
        names, texts = zip(*_ROW.findall(pages[LIST]), strict=True)
        columns = Column(title="page", cells=names), Column(title="what it is for", cells=texts, grows=True)
        _show(render_table(columns, width))
    elif topic in pages:
        _show(pages[topic])
    else:
        options = (f"--{topic}" for verb in VERBS for option in find_options(verb) if option.key == topic)
        listed = ((name, f"{name} {text}".lower()) for name, text in _ROW.findall(pages[LIST]))
        about = (name for name, text in listed if {*topic.split("-")} <= {*re.split(r"[^\w.]+", text)})
        named = (word for word in reversed(words) if word in (*VERBS, *pages))
        meant = next(chain(options, about, named), "") or suggest_name(topic, [*VERBS, *pages, SEARCH])
        meant = meant or suggestions.suggest_verb(topic, VERBS)
        hint = f"did you mean 'ompbind help {meant}'?" if meant else f"try 'ompbind help {SEARCH} {shown}'"
        raise OptionError(f"no command or page is named {shown!r}", hint=hint)
    return 0


def _describe_option(name: str, verbs: Sequence[str], pages: Mapping[str, str], width: int) -> Iterator[str]:
    """Yield a text for each option of verbs with a name: its help, commands and variable, and its pages."""
    rows = [*dict.fromkeys(option for verb in verbs for option in find_options(verb))]
    found = [option for option in rows if name in (*option.names, option.reset_name)]
    if not found:
        meant = suggestions.suggest_option(name, "", [known for option in rows for known in option.names])
        hint = suggestions.make_hint(meant) if meant else f"try 'ompbind help {SEARCH} {name.strip('-')}'"
        raise OptionError(f"no option is named {name!r}", hint=hint)
    for option in found:
        named = re.compile(rf"`(?:{'|'.join(option.names)})(?![\w-])")
        counts = {page: len(named.findall(pages[page])) for page in pages if page not in ("reference", LIST)}
        best = sorted(filter(counts.get, counts), key=counts.__getitem__, reverse=True)[:3]
        lines = {
            "  meaning": option.render_help(), "  commands": ", ".join(option.verbs),
            "  variable": option.variable, "  reset": option.reset_name,
            "  more": ", ".join(f"ompbind help {page}" for page in best),
        }  # fmt: skip
        shown = (render_paragraph(label, text, width) for label, text in lines.items() if text)
        yield "\n".join((option.render_names(), *shown))


def _search(words: tuple[str, ...], pages: Mapping[str, str]) -> list[str]:
    """Return the places of pages with words that begin so, in any case, or else with parts of words."""
    wanted = " ".join(words).lower().split()
    for start in (r"(?<!\w)", ""):
        if found := [*_find_places([start + re.escape(word) for word in wanted], pages)]:
            return found
    text = f"no page contains {' and '.join(map(repr, wanted))}" if wanted else "no word to search for"
    raise OptionError(text, hint=f"'ompbind help {LIST}' lists the pages")


def _find_places(wanted: Sequence[str], pages: Mapping[str, str]) -> Iterator[str]:
    """Yield the page and heading of each place that matches all expressions, and the text there."""
    before, any_case = "", partial(re.search, flags=re.IGNORECASE)
    for page, text in pages.items():
        heading, is_code = "", False
        for part in _PART.split(text):
            line = " ".join(part.split()).strip("| ")
            is_code ^= line.count("```") % 2 > 0
            heading = line.lstrip("# ") if line.startswith("#") and not is_code else heading
            if not wanted or not all(any_case(word, line) for word in wanted):
                continue
            if (place := f"{page}: {heading}") != before:
                yield place
            first = any_case(r"\s".join(wanted), line) or any_case(wanted[0], line)
            before, at = place, first.start() if first else 0
            left, right = line.rfind(" ", 0, max(0, at - AROUND)) + 1, line.find(" ", at + AROUND)
            if not line.startswith("#"):
                yield f"  {'... ' if left else ''}" + (
                    f"{line[left:right]} ..." if right > 0 else line[left:]
                )


def _show(text: str) -> None:
    """Show a text: in a pager on a terminal, where pages are formatted; elsewhere as it is."""
    screen, shown = read_screen(), text.rstrip("\n").replace("\\|", "|")  # escaped in tables
    if not (sys.stdout and sys.stdout.isatty()):
        write_stdout(shown)
        return
    with suppress(ImportError):  # the zipapp has only a part of rich
        from rich import console, markdown, table, theme  # noqa: PLC0415 - door: rich

        if text.startswith("# ") and screen.is_unicode:
            folded = partialmethod(table.Table.add_column, overflow="fold")  # Markdown cuts long options
            table.Table.add_column = folded  # type: ignore[assignment]
            made, bold = StringIO(), theme.Theme({"markdown.code": "bold"})  # by default on black
            terminal = console.Console(
                file=made, width=screen.text_width, force_terminal=screen.styled, theme=bold
            )
            terminal.print(markdown.Markdown(text, hyperlinks=False, code_theme="ansi_dark"))
            shown = made.getvalue()
    os.environ.setdefault("LESS", "-FRX")  # text that fits on the screen stays there
    signal.signal(signal.SIGINT, signal.default_int_handler)  # for the pager, which may exit first
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    click.echo_via_pager(shown)


VERB = Verb(
    "help",
    show_help,
    summary="Show the help of a verb, a page of the documentation, or an option.",
    page="pages",
    examples=EXAMPLES,
    words="topic",
    complete_word=lambda text: (
        sorted({name for verb in VERBS for option in find_options(verb) for name in option.names})
        if text.startswith("-")
        else (*VERBS, SEARCH, *read_pages())
    ),
)
