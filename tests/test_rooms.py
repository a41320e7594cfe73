"""Rules of the code: order of the rooms, pure rooms, imports inside of functions, one reader of numbers."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ompbind"

ROOMS = tuple(
    """
    base procfs machine openmp programs masks planning commands compat registry launchers inspection execution
    workers probe doctor report cli bench plugins
    """.split()  # noqa: SIM905 - a line instead of a column
)
"""All rooms in order: a module imports from its own and earlier rooms; three of them import report."""

BASE = {"errors", "cpuset", "record", "text"}
PURE = {"procfs", "machine", "openmp", "masks", "planning", "commands", "compat"}
READERS = ("procfs.reader", "procfs.process_state", "machine.read")
"""Modules of pure rooms that may read the system."""

IMPURE = {"os", "sys", "time", "subprocess", "pathlib", "io", "socket", "ctypes", "click", "rich", "psutil"}


MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent != PACKAGE or path.name != "__init__.py"
}
NAMES = [name for name in MODULES if not name.startswith("shims")]


def room_of(name):
    top = name.partition(".")[0]
    return "base" if top in BASE else "cli" if top == "__main__" else top


@cache
def imports(name):
    """All modules that a module imports, at any place in it; modules of ompbind without "ompbind."."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}".removeprefix("ompbind.") for alias in node.names}
            found |= inside & MODULES.keys() or {node.module.removeprefix("ompbind.")}
    return found


def ours(name):
    return imports(name) & MODULES.keys()


@pytest.mark.parametrize("room", sorted({room_of(name) for name in NAMES}))
def test_modules_import_from_their_room_and_from_rooms_before(room):
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    if room not in ("report", "cli", "bench", "plugins"):
        allowed.discard("report")
    names = [name for name in NAMES if room_of(name) == room]
    assert not [(name, target) for name in names for target in ours(name) if room_of(target) not in allowed]


def test_imports_have_no_cycles_also_inside_of_functions():
    TopologicalSorter({name: ours(name) - {name} for name in NAMES}).prepare()


def test_pure_rooms_do_not_import_system_modules():
    pure = [name for name in NAMES if room_of(name) in PURE and not name.startswith(READERS)]
    assert len(pure) > 40
    found = [(name, target) for name in pure for target in imports(name)]
    assert not [pair for pair in found if pair[1].partition(".")[0] in IMPURE]


def test_numbers_of_foreign_texts_have_one_reader():
    """`text.whole_number` has a limit: int() raises for 4,300 digits, and for "²", a digit for isdigit()."""
    own = re.compile(r"\.is(digit|decimal|numeric)\b")
    assert [name for name in NAMES if own.search(MODULES[name].read_text())] == ["text"]


def test_the_shim_in_the_pythons_of_ranks_imports_only_loaded_modules():
    """No module imports the shim; the shim imports only modules that every Python has loaded."""
    assert imports("shims.sitecustomize") == {"os", "sys"}
    assert not [name for name in MODULES if any("shims" in target for target in imports(name))]
