"""Change the code of the package by chance, one change at a time, and show which test notices it.

`python tests/mutants.py` draws 200 changes, "mutants". For each it runs the tests of its room, then for at
most 90 seconds all other tests: first those that mention the changed file most often. A seed draws the
same mutants from the same code. The exit code is 1 if too many mutants survive.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import count
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

PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot))
OTHER = dict([*PAIRS, *(pair[::-1] for pair in PAIRS)])
SYMMETRIC = ("max", "min", "isinstance")
"""Functions that give the same for swapped arguments, or always an error."""
DROPPED = ast.If | ast.For | ast.While | ast.With | ast.Try | ast.Raise | ast.Return | ast.Continue
DROPPED |= ast.Break | ast.AugAssign | ast.Delete


def edit(node: ast.AST, **fields: object) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def is_dropped(node: ast.AST) -> bool:
    """Return whether a statement becomes `pass`: none at the top level, and no assignment of a name."""
    drops = isinstance(node, DROPPED) or (isinstance(node, ast.Expr) and type(node.value) is not ast.Constant)
    drops |= isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    return drops and node.col_offset > 0


def change(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a node may become, each with the name of the change."""
    match node:
        case ast.Compare():
            for at, operator in enumerate(node.ops):
                others = [*node.ops[:at], OTHER[type(operator)](), *node.ops[at + 1 :]]
                yield "comparison", edit(node, ops=others)
        case ast.BoolOp():
            yield "and/or", edit(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.Constant() if type(node.value) is int:
            yield from (("number", ast.Constant(node.value + step)) for step in (1, -1))
        case ast.If() | ast.While() | ast.IfExp():
            yield "condition", edit(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension(ifs=[first, *others]):
            yield "condition", edit(node, ifs=[ast.UnaryOp(ast.Not(), first), *others])
        case ast.Call(args=[first, second, *others]) if ast.dump(first) != ast.dump(second):
            if ast.unparse(node.func) not in SYMMETRIC and not isinstance(first, ast.Starred):
                yield "arguments", edit(node, args=[second, first, *others])
    if is_dropped(node):
        yield "statement", ast.Pass()


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may change: nothing in annotations, f-strings, assertions, and arguments of an error."""
    left = [node]
    while left:
        yield (node := left.pop())
        if not isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            annotations = [getattr(node, name, None) for name in ("annotation", "returns")]
            left += [child for child in ast.iter_child_nodes(node) if child not in annotations]


class Mutant(NamedTuple):
    """A change of a file: the place of a node in `walk`, and of what it becomes in `change`."""

    file: str
    line: int
    operator: str
    node: int
    number: int

    def texts(self) -> tuple[str, str, str]:
        """Return the text of the file without and with the change, and what changes."""
        tree = ast.parse((ROOT / self.file).read_bytes())
        before, old = ast.unparse(tree), [*walk(tree)][self.node]
        new = [*change(old)][self.number][1]
        first, second = (ast.unparse(each).strip().partition("\n")[0] for each in (old, new))

        class Change(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> ast.AST:
                return new if node is old else super().visit(node)

        return before, ast.unparse(Change().visit(tree)), f"{first}  ->  {second}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.operator}: {self.texts()[2]}"


@cache
def find_mutants(file: str) -> list[Mutant]:
    nodes = [*walk(ast.parse((ROOT / file).read_bytes()))]
    return [
        Mutant(file, getattr(node, "target", node).lineno, operator, at, number)
        for at, node in enumerate(nodes)
        for number, (operator, _) in enumerate(change(node))
    ]


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
            drawn[mutant.file, mutant.node] = mutant
    return sorted(drawn.values())


def order_tests(mutant: Mutant) -> tuple[list[str], list[str]]:
    """Return the files with tests of the room, and all others: first what mentions its file most often."""
    files = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    words = Path(mutant.file).stem.strip("_").split("_")
    counts = {test: sum(map(path.read_text().count, words)) for test, path in files.items()}
    ordered = sorted(files, key=lambda test: -counts[test] * (2 if "/live/" in test else 1))  # run more code
    own = [test for test in ordered if room_of(test) == room_of(mutant.file)]
    return own, [test for test in ordered if test not in own]


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

    def write(self, path: Path, text: str) -> None:
        """Write a module with a time of its own: Python knows cached code by size and second."""
        path.write_text(text)
        os.utime(path, (next(self.seconds),) * 2)

    def find_failure(self, mutant: Mutant, tests: list[str], limit_s: float) -> str:
        """Return the first test that fails with a mutant and passes without it. Raises TimeoutExpired."""
        old, new, _ = mutant.texts()
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


def try_mutants(mutants: list[Mutant]) -> list[tuple[Mutant, str]]:
    """Try mutants, print a line for each, and return what caught each."""
    results = []
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)  # tests start processes of other users
        copy = Copy(Path(directory))
        for mutant in mutants:
            begun = time.monotonic()
            test = copy.catch(mutant)
            result = f"caught by {test}" if test else "SURVIVED"
            print(f"{mutant}: {result} ({time.monotonic() - begun:.0f} s)", flush=True)
            results.append((mutant, test))
        for test in sorted(copy.failing):
            print(f"fails also without a mutant: {test}")
    return results


def report(results: list[tuple[Mutant, str]]) -> bool:
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
    parser.add_argument("--only", nargs="+", metavar="FILE:LINE", help="all that these lines can have")
    parser.add_argument("--list", action="store_true", help="print them, try none")
    options = parser.parse_args()
    mutants = draw(options.seed, options.number)
    if options.only:
        found = [mutant for each in options.only for mutant in find_mutants(each.partition(":")[0])]
        mutants = [mutant for mutant in found if f"{mutant.file}:{mutant.line}" in options.only]
    if options.list:
        print(*mutants, sep="\n")
        return
    sys.exit(not report(try_mutants(mutants)))


if __name__ == "__main__":
    main()
