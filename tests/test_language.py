"""Messages, help, documentation, docstrings and comments use plain words; names use the terms of the field.

`python tests/test_language.py FILE…` lists what is found in some files.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = sorted((ROOT / "ompbind").rglob("*.py"))
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*.md")),
    ROOT / "Makefile",
]

DISCOURAGED = {
    r"tell|tells|telling|told": "reports, shows, says",
    r"folders?": "directory",
    r"blanks?": "space",
    r"engines?": "launcher",
    r"signs?": "character, symbol",
    r"ended": "exited, finished, was killed",
    r"settled?|settles": "stable",
    r"somebody|anybody|nobody|whoever|whatever|whose ever": "name the user, process or thing",
    r"of which|those that|those who|those of|what is there|as can be": "split the sentence, name the thing",
    r"the one|that one|this one|another one|each one|one another|which one|no one": "name the thing",
    r"keeps? to|kept to|sees? to|seen to|held against|holds? against": "a verb that says what",
    r"mend|mends|mended": "fix, correct",
    r"control groups?": "cgroup",
    r"in each other's way|in their own way|in the way": "contend, contention",
    r"ground|crews?|crowd|kin|ears|lanes?|leavings|front and keeper|the front|keeper|mosaic|rungs?|ladder": (
        "the standard term"
    ),
    r"once more|now and then|ever more|by and by|at once that": "a number, or again",
}
"""Words that readers stumbled over, as regular expressions, and what to write instead."""

NAMES = {
    "one",
    "other_one",
    "told",
    "crew",
    "crews",
    "kin",
    "ground",
    "ladder",
    "rung",
    "keeper",
    "folder",
}
"""Names that say nothing about the thing, or that are private words."""

WORDS = re.compile(r"\b(?:" + "|".join(DISCOURAGED) + r")\b", re.IGNORECASE)
PROSE = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
CODE_SPAN = re.compile(r"`[^`]*`|^\s*[$>].*$", re.MULTILINE)
SINGLE_WORD = re.compile(r"""["'][\w-]*["']""")  # a key or code that programs read


def read_prose(path):
    """Yield (line, text): strings and comments of Python, all of other files but code."""
    source = path.read_text()
    if path.suffix != ".py":
        for number, line in enumerate(source.splitlines(), 1):
            yield number, CODE_SPAN.sub("", line)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_code = token.type == tokenize.STRING and SINGLE_WORD.fullmatch(token.string)
        if token.type in PROSE and not is_code:
            for at, line in enumerate(token.string.splitlines()):
                yield token.start[0] + at, CODE_SPAN.sub("", line)


def read_names(path):
    """Yield (line, name) for names that a Python file gives to variables, parameters and functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def find_discouraged(path):
    found = [(line, word, text.strip()) for line, text in read_prose(path) for word in WORDS.findall(text)]
    if path.suffix == ".py":
        found += [(line, name, "as a name") for line, name in read_names(path) if name in NAMES]
    return [f"{path}:{line}: {word!r}: {text}" for line, word, text in sorted(found)]


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_words_are_plain(path):
    assert find_discouraged(path) == []


def read_types(path):
    """Yield the names of classes and type aliases of a module, without leading underscores."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            yield from (name.id.lstrip("_") for name in node.targets if isinstance(name, ast.Name))


def test_no_type_name_means_two_things():
    homes = Counter(name for path in CODE for name in set(read_types(path)))
    assert [name for name, count in homes.items() if count > 1] == []


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(*find_discouraged(Path(name)), sep="\n")
