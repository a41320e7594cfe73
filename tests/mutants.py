"""Change the code of the package by chance, one change at a time, and show which test notices it.

`python tests/mutants.py` draws 200 changes, "mutants". For each it runs the tests of its room, then for at
most 90 seconds all other tests: first those that share rare words with the changed code. A seed draws the
same mutants from the same code. The exit code is 1 if too many mutants survive.
"""

import argparse
import ast
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import accumulate, count, pairwise
from math import log, sqrt
from pathlib import Path
from random import Random
from typing import NamedTuple

from recordings import RECORDINGS

ROOT = Path(__file__).parent.parent
IMPORTANT = ("planning", "masks", "registry", "execution")
WANTED = {True: 90, False: 80}
"""How many percent tests must catch: in the important rooms together, and in all others together."""
ROOM_S, REST_S = 900, 90
"""How long the tests of the room and all others may take."""
AT_ONCE = 8
"""How many files pytest gets at once: it reads all before the first test."""

# A mutant can signal any process, loop without end, and fill memory and disks.
LIMITED = 'mount --bind "$COPY" ompbind && ulimit -S -t 240 && ulimit -S -v 4000000 && ulimit -S -f 2000000'
LIMITED += ' && setpriv --ambient-caps=-all "$@"; exit $?'
USER = ["--map-current-user", "--keep-caps"] if os.geteuid() else []
CONFINED = ["unshare", *USER, "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", LIMITED, "sh"]
PYTEST = ["-m", "pytest", "-x", "-v", "--tb=no", "--color=no", "-p", "no:cacheprovider", "-m", "not alone"]

PAIRS = [pair.split(b",") for pair in (b"<,<=", b">,>=", b"==,!=", b"in,not in", b"is,is not", b"and,or")]
OTHER = {first: second for pair in PAIRS for first, second in (pair, pair[::-1])}
OPERATOR = re.compile(rb"[<>=!]=|[<>]|\b(?:not\s+in|is\s+not|in|is|and|or)\b")
SYMMETRIC = ("max", "min", "isinstance")
"""Functions that give the same for swapped arguments, or always an error."""
BLOCKS = ast.If | ast.For | ast.While | ast.With | ast.Try
JUMPS = ast.Raise | ast.Return | ast.Continue | ast.Break


class Mutant(NamedTuple):
    """A change of a file: the bytes from `start` to `end` become `new`."""

    file: str
    operator: str
    start: int
    end: int
    new: bytes

    def texts(self) -> tuple[bytes, bytes]:
        old = read(self.file).text
        return old, old[: self.start] + self.new + old[self.end :]

    def is_valid(self) -> bool:
        old, new = self.texts()
        try:
            return old != new and bool(ast.parse(new))
        except SyntaxError:
            return False

    def line(self) -> int:
        return read(self.file).text.count(b"\n", 0, self.start) + 1

    def __str__(self) -> str:
        old, new = (text.decode().splitlines() for text in self.texts())
        first, second = next((a.strip(), b.strip()) for a, b in zip(old, new, strict=False) if a != b)
        return f"{self.file}:{self.line()}: {self.operator}: {first}  ->  {second}"


class Source:
    """A file with its syntax tree."""

    def __init__(self, file: str) -> None:
        self.text = (ROOT / file).read_bytes()
        self.tree = ast.parse(self.text)
        self.lines = [0, *accumulate(map(len, self.text.splitlines(keepends=True)))]

    def span(self, node: ast.AST) -> tuple[int, int]:
        start = self.lines[node.lineno - 1] + node.col_offset
        return start, self.lines[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.AST) -> bytes:
        return self.text[slice(*self.span(node))]


read = cache(Source)
Edits = Iterator[tuple[str, int, int, bytes]]


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may change: nothing in annotations, f-strings, assertions, and arguments of an error."""
    left = [node]
    while left:
        yield (node := left.pop())
        if not isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            annotations = [getattr(node, name, None) for name in ("annotation", "returns")]
            left += [child for child in ast.iter_child_nodes(node) if child not in annotations]


def operators(source: Source, node: ast.AST) -> Edits:
    """Change a comparison, or `and` and `or`."""
    operands = node.values if isinstance(node, ast.BoolOp) else []
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
    for first, second in pairwise(operands):
        begin, end = source.span(first)[1], source.span(second)[0]
        found = OPERATOR.search(source.text, begin, end)
        if found and b"#" not in source.text[begin:end]:
            name = "comparison" if isinstance(node, ast.Compare) else "and/or"
            yield name, found.start(), found.end(), OTHER[b" ".join(found[0].split())]


def values(source: Source, node: ast.AST) -> Edits:
    """Add 1 to a number, subtract 1 from it, or negate a condition."""
    match node:
        case ast.Constant() if type(node.value) is int:
            for value in (node.value + 1, node.value - 1):
                yield "number", *source.span(node), b"%d" % value
        case ast.UnaryOp(op=ast.Not()):
            yield "condition", *source.span(node), source.of(node)[3:].lstrip()
        case ast.If() | ast.While() | ast.IfExp() | ast.comprehension():
            for test in node.ifs if isinstance(node, ast.comprehension) else [node.test]:
                if not isinstance(test, ast.UnaryOp):
                    yield "condition", *source.span(test), b"not (%b)" % source.of(test)


def arguments(source: Source, node: ast.AST) -> Edits:
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in SYMMETRIC):
        for first, second in pairwise(node.args):
            between = source.text[source.span(first)[1] : source.span(second)[0]]
            swapped = source.of(second) + between + source.of(first)
            if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
                yield "arguments", source.span(first)[0], source.span(second)[1], swapped


def statements(source: Source, function: ast.AST) -> Edits:
    """Drop a statement of a function; not the only assignment of a name, which is an error in each call."""
    nodes = list(walk(function)) if isinstance(function, ast.FunctionDef) else []
    names = (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    stored = Counter(names)
    for node in nodes:
        match node:
            case ast.Expr():
                drops = not isinstance(node.value, ast.Constant)
            case ast.Assign(targets=[target]):
                drops = not isinstance(target, ast.Name | ast.Tuple) or stored[getattr(target, "id", "")] > 1
            case _:
                drops = isinstance(node, BLOCKS | JUMPS | ast.AugAssign | ast.Delete)
        if drops and not source.of(node).startswith(b"raise AssertionError"):
            yield "statement", *source.span(node), b"pass"


@cache
def find_mutants(file: str) -> list[Mutant]:
    """Return all mutants of a file. Some may be no Python, or change nothing."""
    found = set()
    for node in walk(read(file).tree):
        for find in (operators, values, arguments, statements):
            found |= {Mutant(file, *edit) for edit in find(read(file), node)}
    return sorted(found)


def room_of(file: str) -> str:
    """Return the room of a file, "base" for the modules of the package itself, and for their tests."""
    return file.split("/")[1] if file.count("/") > 1 else "base"


def draw(seed: int, number: int) -> list[Mutant]:
    """Draw mutants: of each file by its share of lines, of each operator equally often."""
    paths = sorted((ROOT / "ompbind").rglob("*.py"))
    lines = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in paths}
    random, drawn = Random(seed), dict[tuple[str, int], Mutant]()
    while len(drawn) < number:
        if found := find_mutants(*random.choices([*lines], [*lines.values()])):
            operator = random.choice(sorted({mutant.operator for mutant in found}))
            mutant = random.choice([mutant for mutant in found if mutant.operator == operator])
            if mutant.is_valid():
                drawn[mutant.file, mutant.start] = mutant
    return sorted(drawn.values())


def words_of(text: str) -> set[str]:
    """Return the words of a text, names also by their parts."""
    return {*re.findall(r"[^\W_]{3,}", text), *re.findall(r"\w{3,}", text)}


@cache
def read_tests() -> dict[str, set[str]]:
    files = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    return {file: words_of(file + path.read_text()) for file, path in files.items()}


def order_tests(mutant: Mutant) -> tuple[list[str], list[str]]:
    """Return the files with tests of the room, and all others: first what shares rare words with the code."""
    tests, source, line = read_tests(), read(mutant.file), mutant.line()
    changed = (source.of(node) for node in source.tree.body if node.lineno <= line <= node.end_lineno)
    near = words_of(Path(mutant.file).stem + " " + next(changed, b"").decode())
    spread = Counter(word for words in tests.values() for word in words)
    words = words_of(mutant.file + source.text.decode()) & spread.keys()
    weight = {word: log(len(tests) / spread[word]) ** 2 * (3 if word in near else 1) for word in words}

    def score(test: str) -> float:
        shared = sum(weight[word] for word in words & tests[test]) / sqrt(20 + len(tests[test]))
        return -shared * (2 if "/live/" in test else 1)  # these run more of the code

    ordered = sorted(tests, key=score)
    is_own = {test: room_of(test) == room_of(mutant.file) for test in ordered}
    return [test for test in ordered if is_own[test]], [test for test in ordered if not is_own[test]]


class Copy:
    """A copy of the package, which processes in a namespace of their own see in place of the package."""

    def __init__(self, directory: Path) -> None:
        self.failing: set[str] = set()
        """Tests that fail also without a mutant."""
        self.root, self.seconds = directory, count(1)
        shutil.copytree(ROOT / "ompbind", directory / "ompbind")
        (directory / "tmp").mkdir()
        others = ("OMPTEST_ALL", "PYTHONPATH", "PYTEST_ADDOPTS")
        self.env = {name: os.environ[name] for name in os.environ if name not in others}
        self.env["OMPTEST_TOPOLOGIES"] = str(RECORDINGS.resolve())
        self.env |= {"COPY": f"{directory}/ompbind", "TMPDIR": f"{directory}/tmp"}
        # a fault in the copy must be noticed
        file = directory / "ompbind/cli/main.py"
        text = file.read_text()
        file.write_text(f"{text}raise SystemExit('fault')")
        command = [*CONFINED, f"{sys.prefix}/bin/ompbind", "ps"]
        done = subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True)
        file.write_text(text)
        if done.stderr != "fault\n":
            sys.exit(f"a copy of ompbind does not run: {done.stderr}hint: try it as root")

    def run_tests(self, tests: list[str], limit_s: float | None) -> str:
        if not (tests := [test for test in tests if test not in self.failing]):
            return ""
        deselected = [f"--deselect={test}" for test in sorted(self.failing)]
        command = [*CONFINED, sys.executable, *PYTEST, *deselected, *tests]
        with tempfile.TemporaryFile("w+") as output:
            to_file = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            done = subprocess.run(command, cwd=ROOT, env=self.env, timeout=limit_s, **to_file)
            output.seek(0)
            text = output.read()
        if done.returncode in (0, 5):  # passed, or no test is left
            return ""
        # the test that failed, or a file that could not be imported
        found = re.search(r"^(?:(tests/.*?) (?:FAILED|ERROR) |ERROR (\S+))", text, re.M)
        return found[1] or found[2] if found else f"exit code {done.returncode} of pytest: {text[-300:]}"

    def write(self, path: Path, data: bytes) -> None:
        """Write a module with a time of its own: Python knows cached code by size and second."""
        path.write_bytes(data)
        os.utime(path, (next(self.seconds),) * 2)

    def find_failure(self, mutant: Mutant, tests: list[str], limit_s: float) -> str:
        """Return the first test that fails with a mutant and passes without it. Raises TimeoutExpired."""
        old, new = mutant.texts()
        path = self.root / mutant.file
        until, begin = time.monotonic() + limit_s, 0
        while begin < len(tests):
            self.write(path, new)
            try:
                failed = self.run_tests(tests[begin : begin + AT_ONCE], until - time.monotonic())
            finally:
                self.write(path, old)
            if not failed:
                begin += AT_ONCE
            elif not failed.startswith("tests/") or not self.run_tests([failed], None):
                return failed
            else:
                self.failing.add(failed)
        return ""

    def catch(self, mutant: Mutant) -> str:
        """Return what catches a mutant, "" if nothing does."""
        own, rest = order_tests(mutant)
        try:
            if failed := self.find_failure(mutant, own, ROOM_S):
                return failed
        except subprocess.TimeoutExpired:
            return f"no end of tests/{room_of(mutant.file)}"
        try:
            return self.find_failure(mutant, rest, REST_S)
        except subprocess.TimeoutExpired:
            return ""


def try_mutants(mutants: dict[int, Mutant], jobs: int) -> list[tuple[Mutant, str]]:
    """Try mutants, several at once, print a line for each, and return what caught each."""
    copies: queue.Queue[Copy] = queue.Queue()

    def try_mutant(number: int) -> tuple[Mutant, str]:
        copy, begun, mutant = copies.get(), time.monotonic(), mutants[number]
        test = copy.catch(mutant)
        copies.put(copy)
        result = f"caught by {test}" if test else "SURVIVED"
        print(f"{number}: {mutant}: {result} ({time.monotonic() - begun:.0f} s)", flush=True)
        return mutant, test

    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(jobs) as pool:
        Path(directory).chmod(0o755)  # tests start processes of other users
        for job in range(jobs):
            copies.put(Copy(Path(directory, str(job))))
        results = list(pool.map(try_mutant, mutants))
        for test in sorted({test for copy in copies.queue for test in copy.failing}):
            print(f"fails also without a mutant: {test}")
    return results


def report(results: list[tuple[Mutant, str]]) -> bool:
    """Print how many mutants were caught, and return whether these are enough."""
    drawn = Counter(room_of(mutant.file) for mutant, _ in results)
    caught = Counter(room_of(mutant.file) for mutant, test in results if test)
    print("", *(f"{caught[room]:4} of {drawn[room]:3} caught in {room}" for room in drawn), sep="\n")
    enough = True
    for is_important, percent in WANTED.items():
        rooms = [room for room in drawn if (room in IMPORTANT) == is_important]
        found, all_drawn = (sum(counts[room] for room in rooms) for counts in (caught, drawn))
        title = ", ".join(IMPORTANT) if is_important else "all other rooms"
        print(f"{found:4} of {all_drawn:3} caught in {title}: at least {percent} % are wanted")
        enough &= found * 100 >= all_drawn * percent
    return enough


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="draw others")
    parser.add_argument("--number", type=int, default=200, help="draw so many")
    only = "only these numbers, or all that a line can have"
    parser.add_argument("--only", nargs="+", default=[], metavar="N|FILE:LINE", help=only)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="try so many at once")
    parser.add_argument("--list", action="store_true", help="print them, try none")
    options = parser.parse_args()
    mutants = dict(enumerate(draw(options.seed, options.number), 1))
    if options.only:
        mutants = {number: mutants[number] for number in mutants if str(number) in options.only}
        files = {only.partition(":")[0] for only in options.only if ":" in only}
        found = [mutant for file in sorted(files) for mutant in find_mutants(file) if mutant.is_valid()]
        in_lines = [mutant for mutant in found if f"{mutant.file}:{mutant.line()}" in options.only]
        mutants.update(enumerate(in_lines, options.number + 1))
    if options.list:
        print(*(f"{number}: {mutant}" for number, mutant in mutants.items()), sep="\n")
        return
    sys.exit(not report(try_mutants(mutants, options.jobs)))


if __name__ == "__main__":
    main()
