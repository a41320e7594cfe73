"""The names of `ompbind` for Python programs: complete, documented, typed, and imported late."""

import ast
import doctest
import pickle
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import ompbind
from ompbind import Request, RequestError, make_environment, make_plan, parse_mask, read_machine
from ompbind import errors as all_errors
from ompbind.cli.options import PLANNING_OPTIONS
from tests.live.conftest import run_program

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/python.md").read_text()
REFERENCE = PAGE.partition("\n## Python reference\n")[2].replace("\n##", "\n#")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def failures(text, name, names):
    reported = []
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    test.globs = names
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.REPORT_NDIFF)  # not by -v of pytest
    runner.run(test, out=reported.append, clear_globs=False)
    assert test.examples
    return "".join(reported)


def test_the_examples_of_the_page_are_true():
    names = {}
    for number, text in enumerate(text for text in CODE if text.startswith(">>>")):
        assert failures(text, f"example {number}", names) == ""
    assert number >= 4


def test_the_program_of_the_page_runs(tmp_path):
    (text,) = [text for text in CODE if not text.startswith((">>>", "# examples/"))]
    (tmp_path / "program.py").write_text(text)
    done = run_program(sys.executable, "-W", "error", tmp_path / "program.py")
    assert (done.returncode, done.stderr) == (0, "")
    ranks = make_plan(read_machine(), Request(ranks="auto", strategy="nodes")).placements
    expected = [f"server {rank.rank}: {len(rank.cpus)} CPUs, {rank.threads} threads" for rank in ranks]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


def test_the_examples_of_docstrings_are_true():
    finder, tested = doctest.DocTestFinder(recurse=True), 0
    for path in (ROOT / "ompbind").rglob("*.py"):
        if ">>> " in path.read_text():
            module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for test in finder.find(module):
                if test.examples:
                    assert failures(test.docstring, test.name, vars(module).copy()) == ""
                    tested += 1
    assert tested >= 5


def test_every_name_exists_and_is_in_the_reference_and_in_the_stub():
    table = REFERENCE.partition("##")[0]
    cells = [row.split(" | ")[0] for row in table.splitlines() if row.startswith("| `")]
    names = [re.match(r"\w+", code)[0] for cell in cells for code in re.findall(r"`([^`]+)`", cell)]
    assert sorted(names) == sorted(ompbind.__all__)
    assert all(getattr(ompbind, name) is not None for name in ompbind.__all__)
    assert set(ompbind.__all__) <= set(dir(ompbind))
    stub = ast.parse((ROOT / "ompbind/__init__.pyi").read_text())
    typed = {
        node.module.removeprefix("ompbind."): " ".join(alias.name for alias in node.names)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
    }
    assert typed == ompbind._HOMES
    (listed,) = (ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign))
    assert listed == ompbind.__all__


@pytest.mark.parametrize("name", ["Plan", "Placement", "Machine"])
def test_every_field_is_in_the_docstring(name):
    record = getattr(ompbind, name)
    assert not [field for field in record.fields if f"`{field}`" not in record.__doc__]


def test_every_option_has_a_field_or_the_page_says_what_python_has_instead():
    table = REFERENCE.partition("# Options and fields")[2].partition("\n#")[0]
    options, fields = {}, {}
    for number, row in enumerate(re.findall(r"^\|(.*?)\|(.*?)\|", table, re.M)):
        options |= dict.fromkeys(re.findall(r"`--([^`]+)`", row[0]), number)
        fields |= dict.fromkeys(re.findall(r"`(\w+)`", row[1].replace("`Request`", "")), number)
    with_field = {key for key in options if key.replace("-", "_") in Request.fields}
    known = {option.key for option in PLANNING_OPTIONS}
    assert (set(options) - {"name"}, set(fields)) == (known, set(Request.fields))
    assert {options[key] for key in with_field} == {fields[key.replace("-", "_")] for key in with_field}


SERVER = read_machine("sample:four-gpus", devices=True)
VLLM = {"VLLM_CPU_OMP_THREADS_BIND": "0-3|4-7"}
TRUE = ompbind.read_workload([shutil.which("true")], {})


@pytest.mark.parametrize(("line", "request_"), [
    ("-n auto --devices gpu", Request(ranks="auto", devices=(ompbind.DeviceKind.GPU,))),
    ("-n 2 -c 2 --bind thread --memory bind --service-cores 1",
     Request(ranks=2, cores=2, bind=ompbind.Bind.THREAD, memory=ompbind.MemoryMode.BIND, service_cores=1)),
    (f"-n 2 --name a -- {TRUE.program} : --name b -- {TRUE.program}",
     [Request(ranks=2, group="a", workload=TRUE), Request(group="b", workload=TRUE)]),
    ("-n 2 --compat vllm", Request(ranks=2, **ompbind.read_compat("vllm", VLLM, machine=SERVER))),
    ("-n 2 --env OMP_NUM_THREADS=2", Request(ranks=2, user_variables=(("OMP_NUM_THREADS", "2"),))),
], ids=str)  # fmt: skip
def test_a_plan_has_the_json_of_the_command_line(line, request_):
    command = ("plan", "--topology", SERVER.source, "--format", "json", *line.split())
    done = run_program(sys.executable, "-m", "ompbind", *command, env=VLLM)
    assert make_plan(SERVER, request_).to_json() == done.stdout.removesuffix("\n"), done.stderr


def test_importing_loads_nothing_that_is_not_used():
    code = "import sys; before = {*sys.modules, 'ompbind'}; import ompbind; print({*sys.modules} - before)"
    code += "; ompbind.Request; print(*[m for m in sys.modules if m.startswith('ompbind.')])"
    code += "; ompbind.make_environment, ompbind.placed; print('multiprocessing' in sys.modules)"
    code += "; from ompbind import *; print(make_plan.__module__, __version__)"
    nothing, modules, multiprocessing, star = run_program(sys.executable, "-c", code).stdout.splitlines()
    assert (nothing, multiprocessing) == ("set()", "False")
    rooms = {name.split(".")[1] for name in modules.split()}
    assert "planning" in rooms
    assert not rooms & {"cli", "execution", "launchers", "registry"}
    assert star == f"ompbind.planning.planner {ompbind.__version__}"
    with pytest.raises(AttributeError, match="module 'ompbind' has no attribute 'make_place'"):
        _ = ompbind.make_place


MACHINE = read_machine("synthetic:pack:2 core:4 pu:2")


@pytest.mark.parametrize(("fields", "said", "hint"), [
    # of a request
    ({"ranks": "4"}, "ranks='4' is not of type int | Literal['auto']", ""),
    ({"ranks": True}, "ranks=True is not of type int", ""),
    ({"cores": 2.0}, "cores=2.0 is not of type int | None", ""),
    ({"mask": 5}, "mask=5 is not of type Mask | None", "parse_mask"),
    ({"compat": "vllm"}, "compat='vllm' is not of type Compat | None", "read_compat"),
    ({"bind": "thread"}, "bind='thread' is not of type Bind", ""),
    ({"strict": 1}, "strict=1 is not of type bool", ""),
    ({"devices": "gpu"}, "devices='gpu' is not of type", "DeviceKind.GPU"),
    ({"user_variables": (("A", 1),)}, "user_variables=(('A', 1),) is not of type", ""),
    ({"sibling": "middle"}, "sibling='middle' is not of type Literal['first', 'last']", ""),
    ({"core_kind": "big"}, "core_kind='big' is not of type", "performance, efficiency, cache, fast, all"),
    ({"nodes": parse_mask("0|1")}, "nodes='0|1' is not one list of NUMA nodes", "in one part"),
    ({"nodes": parse_mask("0,1")}, "nodes='0,1' is not one list of NUMA nodes", "node:#NUMBER"),
    ({"ranks": 0}, "ranks=0 is too low", "use 1 or more"),
    ({"strategy": "best"}, "unknown strategy 'best'", "balanced, compact"),
    # of an environment
    ({"variables": "OMP_PLACES"}, "variables='OMP_PLACES' is unknown", "'openmp', or a tuple"),
    ({"variables": ("OMP_NUM_THREADS", "PORT")}, "ompbind does not set PORT", "extra={'PORT': '…'}"),
    ({"variables": ("RANK", "OMP_PLACES")}, "OMP_PROC_BIND is missing", "OMP_PLACES and OMP_PROC"),
    ({"extra": {"PORT": 8000}}, "the value of 'PORT' is 8000", "extra={'PORT': '8000'}"),
])  # fmt: skip
def test_wrong_values_are_refused(fields, said, hint):
    for_environment = fields.keys() & {"variables", "extra"}
    with pytest.raises(TypeError if "is not of type" in said else RequestError) as failure:
        make_environment(make_plan(MACHINE, Request(**{} if for_environment else fields)), 0, **fields)
    assert said in str(failure.value)
    assert hint in getattr(failure.value, "hint", str(failure.value))


def test_variables_of_the_user_and_of_frameworks_are_set():
    """The framework in a worker would bind threads again, unless its variables are replaced."""
    base = {"VLLM_CPU_OMP_THREADS_BIND": "0-7", "VLLM_CPU_NUM_OF_RESERVED_CPU": "2", "KMP_BLOCKTIME": "9"}
    base |= {"CPU_VISIBLE_MEMORY_NODES": "0", "VLLM_CPU_SIM_MULTI_NUMA": "1"}
    changes = ompbind.read_compat("vllm", base, machine=MACHINE)
    changes["compat"] = changes["compat"].replace(variables=(("KMP_BLOCKTIME", "5"),))
    plan = make_plan(MACHINE, Request(**changes, user_variables=(("OMP_NUM_THREADS", "3"),)))
    for variables in ("all", "openmp"):
        env = make_environment(plan, 0, base, variables=variables)
        assert env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
        assert not env.keys() & (base.keys() - {"VLLM_CPU_OMP_THREADS_BIND", "KMP_BLOCKTIME"})
        assert (env["OMP_NUM_THREADS"], env["KMP_BLOCKTIME"]) == ("3", "9")
        assert ("RANK" in env) == (variables == "all")
    assert make_environment(plan, 0, {}, variables="openmp")["KMP_BLOCKTIME"] == "5"


def test_fields_of_the_request_override_variables_of_frameworks_and_wrong_values_are_refused(monkeypatch):
    env = {"VLLM_CPU_OMP_THREADS_BIND": "0-3|8-11"}
    request = Request(ranks=2, strategy="compact")
    changes = ompbind.read_compat("vllm", env, machine=MACHINE, request=request)
    assert "mask" not in changes
    assert "mask" in ompbind.read_compat("vllm", env, machine=MACHINE)
    assert request.replace(**changes).strategy == "compact"
    three_nodes = read_machine("synthetic:numa:3 core:1 pu:1")
    assert ompbind.read_compat("vllm", {}, machine=three_nodes)["nodes"].text == "0,1,2"
    monkeypatch.setenv("SGLANG_CPU_OMP_THREADS_BIND", "1")
    assert ompbind.read_compat("sglang")["mask"] == parse_mask("1"), "the environment of this process"

    with pytest.raises(RequestError, match="unknown framework 'torch'") as failure:
        ompbind.read_compat("torch", {})
    assert failure.value.hint == "use vllm, sglang"
    with pytest.raises(ompbind.MaskError, match="VLLM_CPU_OMP_THREADS_BIND"):
        ompbind.read_compat("vllm", {"VLLM_CPU_OMP_THREADS_BIND": "0-x"}, machine=MACHINE)


def test_an_actor_finds_the_rank_with_its_gpu_as_the_page_about_workers_shows():
    page = (ROOT / "docs/workers.md").read_text()
    code = next(code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "visible" in code)
    server = read_machine("sample:four-gpus", devices=True)
    bound = []
    for number in "0123":
        names = {name: getattr(ompbind, name) for name in ompbind.__all__}
        names["os"] = SimpleNamespace(environ={"CUDA_VISIBLE_DEVICES": number})
        names["read_machine"] = lambda **options: server
        names["bind_process"] = lambda plan, rank, **options: bound.append(plan.placements[rank])
        exec(code, names)
    assert [placement.devices[0].name for placement in bound] == [f"gpu:{number}" for number in range(4)]
    assert len({cpu for placement in bound for cpu in placement.cpuset}) == sum(len(p.cpuset) for p in bound)
    assert all(placement.cpuset <= placement.devices[0].cpus for placement in bound)


def test_errors_can_be_sent_to_other_processes():
    """A worker of a pool sends its errors; a pool waits forever for an error that it cannot read."""
    kinds = [value for value in vars(all_errors).values() if isinstance(value, type)]
    kinds = [kind for kind in kinds if issubclass(kind, ompbind.OmpbindError)]
    assert len(kinds) > 5
    for kind in kinds:
        position = {"text": "0-x", "span": (2, 3)} if issubclass(kind, all_errors.PositionError) else {}
        error = kind("wrong", hint="right", **position)
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.args, vars(copy)) == (kind, "wrong", ("wrong",), vars(error))
