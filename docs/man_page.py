"""Write the man page from the verbs, their options, and tables of pages; `generate.py` calls this.

The page is in the language of man(7). Each hyphen is written as `\\-`: options can be searched and copied.
What is typed is bold, what stands for a value is italic.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from ompbind import __version__
from ompbind.cli import PLANNING, VERBS
from ompbind.cli.config_files import FILE_NAME
from ompbind.cli.main import cli, load_verb
from ompbind.cli.option import Option
from ompbind.cli.verb import METAVARS, SHORT_EXAMPLES, Verb
from ompbind.registry.registry import DIRECTORIES, DIRECTORY_VARIABLE

DOCS = Path(__file__).parent
MAN_PAGE = DOCS / "ompbind.1"

_RELEASE = re.compile(r"^## .*\b(\d{4}-\d\d-\d\d)", re.M)
"""A heading of the changelog with the day of a release."""

_BEFORE_RELEASES = "2026-11-20"
"""The day on the page until there is a release: a man page needs a day."""

_ESCAPES = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}

_SEE_ALSO = ("hwloc-bind(1)", "lstopo(1)", "mpirun(1)", "srun(1)", "taskset(1)", "sched_setaffinity(2)",
             "cgroups(7)", "cpuset(7)", "numactl(8)")  # fmt: skip

_OPTIONS = """\
Each option has a form --no-NAME, which resets it to its default. config takes the options of run.

Options of run, exec, plan and bench can also be variables (see ENVIRONMENT) or keys of files (see FILES). The
command line overrides variables. Variables override presets, and presets override other keys of files. If an
option can be repeated, its values from all of these count."""

_GENERAL_OPTIONS = (
    ("--version", "Print the version"),
    ("--help", "Print the help of ompbind or of a command; short: -h"),
    ("--help-all", "Print all options of run, exec, plan or config"),
)

_OTHER_EXITS = (
    "Other commands exit with 0, with 1 if a check fails, and with 2 after an error of ompbind itself."
)

_VARIABLES = (
    ("OMPBIND_NAME", "The value of the option --NAME, in capital letters and with _ for -, such as"
     " OMPBIND_RESERVE_TOTAL. A flag is 1 or 0. Options that name a run or a rank have no variable,"
     " nor have options of bench for its results."),
    (DIRECTORY_VARIABLE, "The directory in which live runs are registered, instead of the first of"
     f" {', '.join(DIRECTORIES)} that all users can write to."),
    ("XDG_CONFIG_HOME", "The directory above the configuration file of the user, instead of ~/.config."),
    ("NO_COLOR", "If it is set, output has no colours."),
)  # fmt: skip

_FILES = (
    (FILE_NAME, "Options and presets for this working directory."),
    (f"~/.config/ompbind/{FILE_NAME}", "Options and presets of the user."),
)

_PAGES = "The pages of the documentation: 'ompbind help pages' lists them."

_REPORT = "To report a fault, add the output of 'ompbind doctor': the versions, the system and the machine."


def render_man_page() -> str:
    """Return the text of the page."""
    verbs = [load_verb(name) for name in VERBS]
    day = _RELEASE.search((DOCS.parent / "CHANGELOG.md").read_text())
    lines = (
        '.\\" docs/generate.py writes this file from the program.',
        f'.TH OMPBIND 1 {day[1] if day else _BEFORE_RELEASES} "ompbind {__version__}" "User Commands"',
        ".nh", ".ad l",  # whole words can be searched
        ".SH NAME", "ompbind \\- start copies of a command, each bound to CPUs of its own",
        ".SH SYNOPSIS", *_synopsis(verbs),
        ".SH DESCRIPTION", *_paragraphs(inspect.cleandoc(cli.help or "")),
        ".SH COMMANDS", *(line for verb in verbs for line in _verb_entry(verb)),
        ".SH OPTIONS", *_paragraphs(_OPTIONS), *_entries(_GENERAL_OPTIONS), *_options(verbs),
        ".SH EXIT STATUS", *_exit_status(),
        ".SH ENVIRONMENT", *_environment(),
        ".SH FILES", *_entries(_FILES),
        ".SH EXAMPLES", *(line for verb in verbs for line in _examples(verb)),
        ".SH REPORTING BUGS", *_paragraphs(_REPORT),
        ".SH SEE ALSO", *_references(), *_paragraphs(_PAGES),
    )  # fmt: skip
    kept = (line for before, line in pairwise(("", *lines)) if line != ".PP" or not before.startswith(".SH"))
    return "\n".join(kept) + "\n"


def escape(text: str) -> str:
    """Return a text with all characters escaped that man(7) would change; the text does not begin a line."""
    return "".join(_ESCAPES.get(char, char) if char.isascii() else f"\\[u{ord(char):04X}]" for char in text)


def _bold(text: str) -> str:
    return f"\\fB{escape(text)}\\fR"


def _italic(text: str) -> str:
    return f"\\fI{escape(text)}\\fR" if text else ""


def _prose(text: str, values: Sequence[str] = ()) -> str:
    """Return a line of text: options in bold, `values` (words that stand for values) in italic."""
    marks = "|".join([r"(?<![\w-])--?[a-z][\w-]*", *(rf"\b{word}\b" for word in values)])
    parts = re.split(f"({marks})", " ".join(text.split()))
    plain, marked = parts[::2], [_bold(part) if part[0] == "-" else _italic(part) for part in parts[1::2]]
    line = "".join(escape(words) + mark for words, mark in zip(plain, [*marked, ""], strict=True))
    return f"\\&{line}" if line.startswith(".") else line


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text; lines that are indented stay as they are."""
    for paragraph in filter(None, text.split("\n\n")):
        verbatim = paragraph.replace("\b\n", "").startswith("  ")
        yield from (_code(paragraph.replace("\b\n", "")) if verbatim else (".PP", _prose(paragraph)))


def _code(line: str) -> tuple[str, ...]:
    return ".PP", ".RS 4", ".nf", _bold(line.strip()), ".fi", ".RE"


def _entry(tag: str, text: str) -> tuple[str, ...]:
    """Return an item of a list: the tag, and an indented text."""
    return ".TP", tag, text


def _entries(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        yield from _entry(_bold(name), _prose(text))


def _usage(verb: Verb) -> str:
    dashes = f" {_bold('--')}" if verb.words == "command" else ""
    words = METAVARS.get(verb.words, "")
    return f"{_bold(f'ompbind {verb.name}')} [{_italic('OPTIONS')}]{dashes} {_italic(words)}".rstrip()


def _synopsis(verbs: Sequence[Verb]) -> Iterator[str]:
    for line in (*map(_usage, verbs), f"{_bold('ompbind --version')} [{_bold('-v')}]"):
        yield from (line, ".br")
    yield f"{_bold('ompbind')} [{_italic('COMMAND')}] {_bold('--help')}"


def _verb_entry(verb: Verb) -> Iterator[str]:
    first, *others = filter(None, f"{verb.help}\n\n{verb.details}".split("\n\n"))
    yield from _entry(_usage(verb), _prose(first))
    for paragraph in others:
        yield from (".IP", _prose(paragraph))


def _options(verbs: Sequence[Verb]) -> Iterator[str]:
    """Yield all options: by section if several planning verbs have them, else by verb."""
    groups: dict[str, dict[str, Option]] = {}
    for option in dict.fromkeys(option for verb in verbs for option in verb.options):
        is_shared = len(set(PLANNING) & set(option.verbs)) > 1
        title = option.section if is_shared else f"Options of {_list(option.verbs)}"
        groups.setdefault(title, {})[f"{option.long_name} {option.verbs}"] = option
    for title, options in sorted(groups.items(), key=lambda group: group[0].startswith("Options of")):
        yield f".SS {escape(title)}"
        for option in options.values():
            yield from _option_entry(option)


def _option_entry(option: Option) -> tuple[str, ...]:
    value = option.value_name
    space = " " if value and not value.startswith("[=") else ""
    text = _prose(option.render_help(), sorted(set(re.findall(r"[A-Z]{1,}", value))))
    is_of_all = set(PLANNING) <= set(option.verbs) or len(option.verbs) == 1 or not option.variable
    verbs = "" if is_of_all else escape(f" ({_list(option.verbs)})")
    return _entry(", ".join(map(_bold, option.names)) + space + _italic(value), text + verbs)


def _list(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _exit_status() -> Iterator[str]:
    yield from _paragraphs("The exit status of run and exec:")
    for code, meaning in _read_rows("running.md", "Exit codes"):
        yield from _entry(_inline(code), _inline(meaning))
    yield from _paragraphs(_OTHER_EXITS)


def _environment() -> Iterator[str]:
    yield from _entries(_VARIABLES)
    yield from _paragraphs("What a rank finds in its environment:")
    for names, value in _read_rows("formats.md", "What a rank finds in its environment"):
        yield from _entry(_inline(names), _inline(value))


def _examples(verb: Verb) -> Iterator[str]:
    for title, line in verb.examples[:SHORT_EXAMPLES]:
        yield from (*_paragraphs(f"{title}:"), *_code(line))


def _references() -> Iterator[str]:
    *first, last = (name.partition("(") for name in _SEE_ALSO)
    yield from (f".BR {escape(page)} ({section} ," for page, _, section in first)
    yield f".BR {escape(last[0])} ({last[2]}"


def _read_rows(page: str, heading: str) -> Iterator[list[str]]:
    """Yield the cells of the table below a heading of a page, without its head."""
    text = (DOCS / page).read_text()
    section = re.split(r"^## ", text.partition(f"## {heading}\n")[2], maxsplit=1, flags=re.M)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    for row in rows[2:]:
        yield [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def _inline(text: str) -> str:
    """Return a text of a page: `code` is bold, a link is its text, a link in parentheses is left out."""
    link = r"\[([^]]*)\]\([^)]*\)"
    text = re.sub(link, r"\1", re.sub(rf" \({link}\)", "", text))
    parts = text.split("`")
    line = "".join(_bold(part) if index % 2 else escape(part) for index, part in enumerate(parts) if part)
    return f"\\&{line}" if line.startswith(".") else line
