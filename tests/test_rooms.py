"""Rules of the code: order of the rooms, pure rooms, late imports, length of functions and modules."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ompbind"

ROOMS = tuple(
    """
    base procfs machine openmp programs masks planning compat registry launchers inspection execution
    probe doctor bench report cli
    """.split()  # noqa: SIM905 - a line instead of a column
)
"""All rooms in order: a module imports from its own room and from earlier rooms; only cli imports report."""

BASE = {"errors", "cpuset", "digest", "enums", "record", "severity", "text"}
PURE = {"procfs", "machine", "openmp", "masks", "planning", "compat"}
READERS = (
    *(f"procfs.{name}" for name in ("reader", "process_facts", "process_state")),
    "machine.sources",
)
"""Modules of pure rooms that may read the system."""

IMPURE = {"os", "sys", "time", "subprocess", "pathlib", "io", "socket", "ctypes", "click", "rich", "psutil"}


def read_modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__":
            yield name, ast.parse(path.read_text())


MODULES = dict(read_modules())
NAMES = [name for name in MODULES if not name.startswith("shims")]


def room_of(name):
    top = name.partition(".")[0]
    return "base" if top in BASE else "cli" if top == "__main__" else top


@cache
def imports(name):
    """All modules that a module imports, at any place in it; modules of ompbind without "ompbind."."""
    found = set()
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}".removeprefix("ompbind.") for alias in node.names}
            found |= inside & MODULES.keys() or {node.module.removeprefix("ompbind.")}
    return found


def ours(name):
    return imports(name) & MODULES.keys()


def test_every_room_has_a_position_and_a_docstring():
    assert {room_of(name) for name in NAMES} <= set(ROOMS)
    for path in PACKAGE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


@pytest.mark.parametrize("room", ROOMS)
def test_modules_import_from_their_room_and_from_rooms_before(room):
    allowed = set(ROOMS[: ROOMS.index(room) + 1]) - ({"report"} if room not in ("report", "cli") else set())
    names = [name for name in NAMES if room_of(name) == room]
    assert not [(name, target) for name in names for target in ours(name) if room_of(target) not in allowed]


def test_imports_have_no_cycles_and_short_chains():
    longest = dict[str, int]()
    for name in TopologicalSorter({name: ours(name) - {name} for name in NAMES}).static_order():
        longest[name] = 1 + max((longest[target] for target in ours(name) - {name}), default=0)
    assert max(longest.values()) <= 20, max(longest, key=longest.__getitem__)


def test_pure_rooms_do_not_import_system_modules():
    pure = [name for name in NAMES if room_of(name) in PURE and not name.startswith(READERS)]
    assert len(pure) > 40
    assert not [
        (name, target) for name in pure for target in imports(name) if target.partition(".")[0] in IMPURE
    ]


def test_every_dependency_is_imported_by_a_module():
    project = (PACKAGE.parent / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[(.*)\]$", project, re.MULTILINE)
    names = set(re.findall(r'"(\w+)', listed[1]))
    assert names
    assert names <= {target.partition(".")[0] for name in MODULES for target in imports(name)}


def test_the_shim_in_the_pythons_of_ranks_imports_only_loaded_modules():
    """No module imports the shim; the shim imports only modules that every Python has loaded."""
    assert imports("shims.sitecustomize") == {"os", "sys", "typing"}
    assert not [name for name in MODULES if any("shims" in target for target in imports(name))]


def loaded_by(code):
    """The modules that some code loads in addition to the modules of the interpreter and of click."""
    script = (
        f"import click, sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.splitlines()[-1].split())


OURS = {"ompbind", *(f"ompbind.{name}" for name in MODULES)}
STANDARD = {
    "gc",
    "signal",
    "select",
    "fcntl",
    "locale",
    "_locale",
    "resource",
    "_ctypes",
}
TO_RUN = "import ompbind.cli.main, ompbind.cli.run, ompbind.execution.supervisor"
JSON = {"json", "json.decoder", "json.encoder", "json.scanner", "_json"}


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("import ompbind.cli.main", STANDARD | OURS),
        (TO_RUN, STANDARD | OURS),
        ("import ompbind.cli.main, ompbind.execution.report_file", STANDARD | OURS),
        ("import ompbind.cli.main, ompbind.cli.plan", STANDARD | OURS | JSON | {"shlex", "textwrap"}),
    ],
    ids=["main", "run", "report", "plan"],
)
def test_a_start_loads_only_needed_modules(code, most):
    assert loaded_by(code) <= most


def test_version_and_usage_errors_load_few_modules():
    """Only modules of ompbind are counted: click loads more of the standard library for these."""
    call = "from ompbind.cli.main import main\ntry: main(['{}'])\nexcept SystemExit: pass"
    least = {
        "ompbind",
        *(f"ompbind.{name}" for name in ("errors", "cli", "cli.main", "cli.console", "cli.verbs")),
    }
    least |= {"ompbind.cli.click_main", "ompbind.cli.usage_errors"}
    assert loaded_by(call.format("--version")) & OURS == least
    for_errors = {
        f"ompbind.{name}" for name in ("report", "report.text", "text", "cpuset", "record", "enums")
    }
    for_errors |= {"ompbind.enums", "ompbind.cli.suggestions", "ompbind.programs", "ompbind.programs.which"}
    for_errors |= {"ompbind.cli.print_error", "ompbind.cli.terminal"}
    for_errors |= {name for name in OURS if name.startswith(("ompbind.masks", "ompbind.machine"))}
    assert loaded_by(call.format("nonsense")) & OURS <= least | for_errors


def test_a_start_of_ranks_loads_neither_reports_nor_other_verbs():
    loaded = loaded_by(TO_RUN)
    others = tuple(f"ompbind.{room}" for room in ("report", "probe", "doctor", "bench"))
    assert not [name for name in loaded if name.startswith(others)]
    assert not loaded & {"rich", "psutil", "asyncio", "dataclasses", "ctypes", "subprocess"}


FOR_RANKS = set(
    "__future__ _ctypes _operator errno fcntl gc itertools operator resource select".split()  # noqa: SIM905
)
"""Modules outside of ompbind that a start of ranks may load: no click, re, typing, collections or json."""


def loaded_by_command(*words):
    """All modules that a Python loads, and all that it loads to run a command line of ompbind."""
    by_python = "import ompbind.cli.quick_imports as quick; quick.start_quick_imports = lambda: None"
    start = (f"{by_python}; from ompbind.__main__ import start; start()", *words)
    for code in (("pass",), start):
        command = [sys.executable, "-X", "importtime", "-c", *code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        yield {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time:" in line}


@pytest.mark.parametrize("words", ["run -n 1", "run -q -n 2 --share", "run --avoid", "exec", "exec -m all"])
def test_a_start_of_ranks_loads_few_standard_modules(words):
    bare, loaded = loaded_by_command(*words.split(), "--", "true")
    assert "ompbind.planning.planner" in loaded
    assert loaded - bare - OURS <= FOR_RANKS


@pytest.mark.parametrize(
    "words",
    [(sys.executable, "{script}"), ("{script}",), ("env", "A=1", "{script}")],
    ids=["python", "script", "env"],
)
def test_a_start_of_a_python_loads_few_standard_modules(tmp_path, words):
    """Libraries are searched in the packages of the Python."""
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    command = (word.format(script=script) for word in words)
    bare, loaded = loaded_by_command("run", "-n", "1", "--", *command)
    assert "ompbind.programs.python_packages" in loaded
    assert loaded - bare - OURS <= FOR_RANKS


RARELY_USED = {
    "ompbind.cli.exec_description",
    "ompbind.cli.launcher_messages",
    "ompbind.cli.options.apply_rules",
    "ompbind.cli.options.planning_rules",
    "ompbind.cli.options.running_rules",
    "ompbind.cli.run_description",
    "ompbind.cli.run_report",
    "ompbind.execution.safe_files",
    "ompbind.machine.sources.linux.recording",
    "ompbind.machine.sources.root",
    "ompbind.machine.sources.table",
    "ompbind.openmp.place_reading",
    "ompbind.openmp.runtime_pairs",
    "ompbind.openmp.service_places",
    "ompbind.planning.allocation_checks",
    "ompbind.planning.allocation_errors",
    "ompbind.planning.compat_notes",
    "ompbind.planning.exact_binding",
    "ompbind.planning.mask_notes",
    "ompbind.planning.mask_parts",
    "ompbind.planning.oversubscription",
    "ompbind.planning.placeholders",
    "ompbind.planning.request_checks",
    "ompbind.planning.requested_cores",
    "ompbind.planning.reserved_cores",
    "ompbind.planning.runtime_conflicts",
    "ompbind.planning.service_cpus",
    "ompbind.planning.service_notes",
    "ompbind.planning.strategies.domains",
    "ompbind.planning.strategies.equal_shares",
    "ompbind.planning.strategies.level_ranges",
    "ompbind.planning.strategies.packing",
    "ompbind.planning.strategies.shares",
    "ompbind.planning.strategies.sized",
    "ompbind.planning.strategies.subsequence",
    "ompbind.planning.strictness",
    "ompbind.planning.unbound_commands",
    "ompbind.planning.user_variables",
    "ompbind.procfs.process_facts",
    "ompbind.procfs.process_files",
    "ompbind.programs.command_errors",
    "ompbind.programs.process_launchers",
    "ompbind.programs.python_packages",
    "ompbind.programs.wrappers",
    "ompbind.registry.directory_lock",
}
"""Modules that one rank with the defaults does not need."""


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_a_start_of_one_rank_loads_no_rarely_used_modules(verb):
    _, loaded = loaded_by_command(verb, "--", "true")
    assert "ompbind.planning.planner" in loaded
    assert RARELY_USED <= OURS
    assert not loaded & RARELY_USED


def test_short_options_do_not_load_difflib():
    plan = "cli.main(['plan', '-n', '1', '-m', 'all'], standalone_mode=False)"
    assert "difflib" not in loaded_by(f"from ompbind.cli.click_main import cli; {plan}")


def functions():
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield f"{name}.{node.name}", node


def body_lines(node):
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_functions_are_short_and_take_few_parameters():
    sizes = {name: body_lines(node) for name, node in functions()}
    assert not [name for name, size in sizes.items() if size > 40]
    assert sorted(sizes.values())[len(sizes) // 2] <= 9
    for name, node in functions():
        if name != "cli.quick_imports.import_quickly":  # it has the parameters of `__import__`
            assert len([arg for arg in node.args.args if arg.arg not in ("self", "cls", "mcs")]) <= 4, name


def test_modules_are_short_and_have_docstrings():
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 320, path
        assert ast.get_docstring(ast.parse(path.read_text())), path
