"""List words that readers stumbled over: in messages, help, documentation, docstrings, comments and names.

`make check` looks at text that changed since the branch left `origin/main`, and in the last commit.
With `--all`, it looks at everything, with `--since COMMIT` at later changes.
The exit code is 1 if there is such a word.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = sorted((ROOT / "ompbind").rglob("*.py"))
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*.md")),
    ROOT / "docs/ompbind.1",
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


def read_prose(path: Path) -> Iterator[tuple[int, str]]:
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


def read_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, name) for names that a Python file gives to variables, parameters and functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def find_discouraged(path: Path) -> list[tuple[int, str]]:
    """Return (line, text) for each discouraged word and name in a file."""
    found = [
        (line, f"{word!r}, better: {better_word(word)}: {text.strip()}")
        for line, text in read_prose(path)
        for word in WORDS.findall(text)
    ]
    if path.suffix == ".py":
        found += [(line, f"{name!r} as a name") for line, name in read_names(path) if name in NAMES]
    return sorted(found)


def better_word(word: str) -> str:
    """Return what to write instead of a discouraged word."""
    rows = DISCOURAGED.items()
    return next(better for pattern, better in rows if re.fullmatch(pattern, word, re.IGNORECASE))


def git(*args: str) -> str:
    """Return what git prints, "" where it fails: outside of a repository, or without such a commit."""
    command = ["env", "git", *args]  # env exits with 127 where git is not installed
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False).stdout


def find_base() -> str:
    """Return the commit since which text counts as changed, "" if there is no history."""
    branch = git("merge-base", "HEAD", "origin/main").strip()
    last = git("rev-parse", "--verify", "--quiet", "HEAD~1").strip()
    return last if branch in ("", git("rev-parse", "HEAD").strip()) else branch


def read_changed_lines(base: str, path: Path) -> set[int]:
    """Return the numbers of the lines of a file that are new or changed since a commit."""
    if not git("ls-files", "--", str(path)):  # a new file
        return set(range(1, path.read_text().count("\n") + 2))
    hunks = re.findall(r"^@@ \S+ \+(\d+)(?:,(\d+))? @@", git("diff", "-U0", base, "--", str(path)), re.M)
    return {line for start, count in hunks for line in range(int(start), int(start) + int(count or 1))}


def main() -> int:
    """Print what was found, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="look at all text, not only at changed text")
    parser.add_argument("--since", metavar="COMMIT", help="look at text that changed since this commit")
    options = parser.parse_args()
    base = options.since or find_base()
    if not (base or options.all):
        print("no history: no text was checked; --all checks everything")
        return 0
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in (*CODE, *PAGES)
        if (words := find_discouraged(path))
        for changed in [None if options.all else read_changed_lines(base, path)]
        for line, text in words
        if changed is None or line in changed
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
