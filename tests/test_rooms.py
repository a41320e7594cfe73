"""The house keeps its order: who imports whom, what loads when, and how long functions are."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ompbind"

TABLE = """
words:   words record errors cpuset
values:  libraries workload liveruns topology kinds memories items mend mask request mempolicy
         placement neighbours policies runtimes places selection field fitting strategies crowd
         ground shares explain strictness decide advice plan measures reasons compat numa_maps
         threads causes verdicts verified openmp command outputs tagging events hints sight crews
         looks findings surroundings checks_cpus checks_system checks_variables checks_command
         doctor
machine: machine.root machine.archive machine.cgroup machine.sysfs machine.numa machine.corekinds
         machine.fallback machine.linux machine.hwloc_xml machine.lscpu machine.synthetic
         machine.own_json machine.sources machine.engines machine.which machine.elf
         machine.libraries machine.programs machine.preloads machine.settings machine.commands
effects: freeze.sitecustomize observe.numa_maps observe.threads launch.memory launch.confine
         launch.claims launch.kin launch.ladder launch.terminal launch.ears launch.wakeup
         launch.limits launch.front launch.leavings launch.spawn launch.rendezvous launch.settling
         launch.sinks launch.logs launch.ptys launch.lanes launch.pump launch.watch launch.stopping
         launch.verifying launch.ends launch.supervise launch.worker observe.runtimes observe.probe
         observe.processes observe.inspect observe.looks observe.permissions launch.reports
reports: report.text report.machine report.tree report.listing report.plan report.measures
         report.exports report.probe report.ps report.inspect report.watch report.outcome
         report.verified report.run report.doctor report.overlay report.boxes report.layout
         report.picture report.blocks report.mosaic
shell:   cli.verb cli.say cli.settle cli.options cli.running cli.exec cli.plan cli.probe cli.doctor
         cli.ps cli.run cli.watch cli.inspect cli.topo cli.main __main__
"""
FLOORS = [floor.split() for floor in re.split(r"\w+:", TABLE)[1:]]
"""Every module in the one total order; a module imports only what stands before it."""

ORDER = [module for floor in FLOORS for module in floor]
FLOOR_OF = {module: number for number, floor in enumerate(FLOORS) for module in floor}
PURE = {"os", "subprocess", "psutil", "click", "rich", "time", "sys", "pathlib", "io", "socket", "ctypes"}
ROOMS = {"machine", "launch", "observe", "report", "cli"}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if not name.endswith("__init__"):
            yield name, ast.parse(path.read_text())


MODULES = dict(modules())


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_every_module_has_its_place():
    assert sorted(MODULES) == sorted(ORDER)
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_modules_import_only_what_stands_before_them(name):
    for target in imports(MODULES[name]):
        if target.startswith("ompbind."):
            assert ORDER.index(target.removeprefix("ompbind.")) < ORDER.index(name), target
        elif target != "ompbind":
            assert FLOOR_OF[name] > 1 or target.partition(".")[0] not in PURE, target


@pytest.mark.parametrize("name", FLOORS[4])
def test_reports_know_values_only(name):
    for target in imports(MODULES[name]):
        assert not target.startswith(("ompbind.machine", "ompbind.launch", "ompbind.observe")), target


def test_what_runs_in_the_pythons_of_ranks_needs_nothing_that_may_not_be_there():
    """It has its place in the table, but nobody imports it, and it only what every Python has loaded."""
    assert set(imports(MODULES["freeze.sitecustomize"])) == {"os", "sys", "typing"}
    assert not [name for name, tree in MODULES.items() if any("freeze" in one for one in imports(tree))]


def loaded_by(code):
    """The modules that some code loads on top of what the interpreter and click load."""
    script = (
        f"import click, sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.splitlines()[-1].split())


STANDARD = {
    "gc",
    "signal",
    "select",
    "fcntl",
    "locale",
    "_locale",
    "resource",
    "_ctypes",
    "struct",
    "_struct",
    "ompbind",
    *(f"ompbind.{name}" for name in ORDER),
    *(f"ompbind.{r}" for r in ROOMS),
}
TO_RUN = "import ompbind.cli.main, ompbind.cli.run, ompbind.execution.supervisor"
TO_PLAN = "import ompbind.cli.main, ompbind.cli.plan"


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import ompbind.cli.main", set()),
        (TO_RUN, set()),
        ("import ompbind.cli.main, ompbind.execution.report_file", set()),
        (TO_PLAN, {"json", "json.decoder", "json.encoder", "json.scanner", "_json", "shlex", "textwrap"}),
    ],
)
def test_starting_loads_nothing_that_is_not_needed(code, extra):
    assert loaded_by(code) <= STANDARD | extra


def test_starting_a_rank_loads_neither_reports_nor_other_verbs():
    loaded = loaded_by(TO_RUN)
    assert not [name for name in loaded if name.startswith(("ompbind.report", "ompbind.observe"))]
    assert not loaded & {
        "rich",
        "psutil",
        "asyncio",
        "importlib.metadata",
        "dataclasses",
        "ctypes",
        "subprocess",
    }


def test_short_options_are_read_without_comparing_them_with_all_others():
    plan = "cli.main(['plan', '-n', '1', '-m', 'all'], standalone_mode=False)"
    assert "difflib" not in loaded_by(f"from ompbind.cli.main import cli; {plan}")


def functions():
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield name, node


def body_lines(node):
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_functions_are_short_and_take_few_parameters():
    long_ = [f"{name}.{node.name}" for name, node in functions() if body_lines(node) > 40]
    assert not long_
    wide = [
        f"{name}.{node.name}"
        for name, node in functions()
        if len([arg for arg in node.args.args if arg.arg not in ("self", "cls", "mcs")]) > 4
    ]
    assert not wide
    sizes = sorted(body_lines(node) for _, node in functions())
    assert sizes[len(sizes) // 2] <= 9


@pytest.mark.parametrize("name", ORDER)
def test_modules_fit_their_room(name):
    path = PACKAGE / (name.replace(".", "/") + ".py")
    assert len(path.read_text().splitlines()) <= 320
    assert ast.get_docstring(MODULES[name])
