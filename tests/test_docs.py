"""The documentation is correct: examples run, options exist, the reference is current, links work."""

import re
import shlex
import subprocess
import tarfile
from contextlib import suppress
from importlib import import_module, util
from itertools import takewhile
from pathlib import Path

import pytest

from ompbind import Request, make_plan, read_machine
from ompbind.cli.click_main import make_click_command
from ompbind.cli.options.table import find_keys, find_options
from ompbind.cli.options.values import Values
from ompbind.cli.verb import read_values
from ompbind.cli.verbs import VERBS
from ompbind.compat.table import FRAMEWORKS
from ompbind.errors import MaskError
from ompbind.launchers.table import LAUNCHERS
from ompbind.machine.devices import Device, DeviceKind, number_devices
from ompbind.machine.model import Level
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.report.export.table import FORMATS
from ompbind.report.plan_json import render_plan_json
from ompbind.report.topology_json import render_json
from tests.live.conftest import clean_environment
from tests.machines import Shape, make_machine, write_tree

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
KNOWN = "|".join(VERBS)
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.S)


def blocks(kind):
    for page in PAGES:
        for found, text in BLOCK.findall(page.read_text()):
            if found == kind:
                yield page.name, text


SESSIONS = [
    pytest.param(text, id=f"{page}-{number}")
    for number, (page, text) in enumerate(blocks("console"))
    if any(source in text for source in ("machine.tar.gz", "gpus.json", "server.json", "synthetic:"))
]


SMALL = Shape(packages=2, cores=8, smt=2)
LARGE = Shape(packages=2, nodes=4, cores=4)


def make_device(shape, address, node, *names, kind=DeviceKind.GPU):
    return Device(kind=kind, index=0, address=address, cpus=shape.partitions()[Level.NODE][node], node=node,
                  names=names)  # fmt: skip


def make_gpu(shape, address, node, *names):
    uuid = f"GPU-46f77619-68bf-8f9d-7cfb-61fa9c4ca69{address[5]}"
    return make_device(shape, address, node, *names).replace(vendor="10de", product="2335", uuid=uuid)


def make_nic(shape, address, node, *names):
    return make_device(shape, address, node, *names, kind=DeviceKind.NIC).replace(rdma_names=names[1:])


SMALL_DEVICES = (
    make_gpu(SMALL, "0000:16:00.0", 0, "card1", "renderD128"),
    make_gpu(SMALL, "0000:26:00.0", 0, "card2", "renderD129"),
    make_gpu(SMALL, "0000:96:00.0", 1, "card3", "renderD130"),
    make_gpu(SMALL, "0000:a6:00.0", 1, "card4", "renderD131"),
    make_nic(SMALL, "0000:03:00.0", 0, "ib0", "mlx5_0"),
    make_nic(SMALL, "0000:93:00.0", 1, "ib1", "mlx5_1"),
    make_device(SMALL, "0000:53:00.0", 0, "card0", kind=DeviceKind.DISPLAY),
)
LARGE_DEVICES = [make_gpu(LARGE, f"0000:{node}6:00.0", node) for node in (1, 2, 6, 7)]
MACHINES = {"gpus.json": (SMALL, SMALL_DEVICES), "server.json": (LARGE, LARGE_DEVICES)}
"""The machines with devices in the examples."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Return a directory with the recording and the JSON that the examples use."""
    made = tmp_path_factory.mktemp("docs")
    for name, (shape, devices) in MACHINES.items():
        machine = make_machine(shape, arch="x86_64", devices=number_devices(devices))
        (made / name).write_text(render_json(machine))
    files = {"proc/hwloc-nofile-info": "Architecture: x86_64\n"}
    tree = write_tree(made / "machine", Shape(packages=2, cores=4, smt=2), files)
    with tarfile.open(made / "machine.tar.gz", "w:gz") as archive:
        archive.add(tree, arcname="machine")
    return made


@pytest.mark.parametrize("text", SESSIONS)
def test_sessions_print_what_the_page_shows(directory, text):
    command, _, expected = text.partition("\n")
    done = subprocess.run(
        command.removeprefix("$ "), shell=True, cwd=directory, env=clean_environment(), text=True, timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.stdout == expected


def test_there_are_sessions():
    assert len(SESSIONS) >= 5


def command_lines():
    """Yield (page, command line) for each command of ompbind in a page or a help text."""
    for kind in ("sh", "console", "text"):
        for page, text in blocks(kind):
            for line in text.splitlines():
                found = re.search(rf"\bompbind ({KNOWN})\b[^\"#>]*", line)
                shown = kind == "sh" or line.startswith("$ ")
                if found and shown:
                    yield page, command_of(found)
    for verb in VERBS:
        for _, line in make_click_command(verb).verb.examples:
            yield verb, command_of(re.search(rf"ompbind ({KNOWN})\b[^\"]*", line))


def command_of(found):
    """Return the command line of a match; inside of $( ) it stops before the bracket."""
    inside = found.string[: found.start()].endswith("$(")
    return (found[0].partition(")")[0] if inside else found[0]).rstrip()


@pytest.fixture
def presets(tmp_path, monkeypatch):
    """The first example of the page about configuration files, as the file of the user; and a plan."""
    path = tmp_path / "ompbind/ompbind.toml"
    path.parent.mkdir()
    path.write_text(next(text for page, text in blocks("toml") if page == "configuration.md"))
    path.chmod(0o644)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    plan = make_plan(read_machine("synthetic:core:4 pu:1"), Request(ranks=4))
    (tmp_path / "plan.json").write_text(render_plan_json(plan, [{}] * 4))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("page", "line"), sorted(set(command_lines())))
def test_ompbind_accepts_the_command_lines_of_pages(page, line, presets):
    verb, *args = takewhile(lambda word: word != "|", shlex.split(line)[1:])
    command = make_click_command(verb)
    with suppress(MaskError):  # pages show errors of masks too
        values = Values(verb, find_options(verb), find_keys=find_keys)
        read_values(values, command.make_line(command.make_context(verb, args)))


def test_the_table_of_options_is_as_shown(presets, tmp_path):
    command, *shown = next(text for page, text in blocks("text") if page == "configuration.md").splitlines()
    env = {**clean_environment(), "XDG_CONFIG_HOME": str(tmp_path)}
    words = shlex.split(command.removeprefix("$ "))
    done = subprocess.run(words, env=env, cwd=tmp_path, text=True, capture_output=True, timeout=60)
    table = shown[shown.index("") + 1 : -1]
    assert len(table) == 4
    assert [line for line in done.stdout.splitlines() if line in table] == table


@pytest.fixture(scope="module")
def generate():
    spec = util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_up_to_date(generate):
    assert generate.REFERENCE.read_text() == generate.render_reference(), "run 'make docs'"


def test_pages_show_the_examples_as_they_are(generate):
    shown = [name for page in PAGES for name in generate.EXAMPLE.findall(page.read_text())]
    assert sorted(shown) == sorted(f"examples/{path.name}" for path in (ROOT / "docs/examples").glob("*.*"))
    for page in PAGES:
        assert generate.render_examples(page.read_text()) == page.read_text(), "run 'make docs'"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_have_targets(page):
    for target, heading in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        assert heading in headings((page.parent / target) if target else page), (target, heading)


def headings(page):
    """Return the names by which links reach the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)", BLOCK.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_list_of_pages_is_complete():
    listed = re.findall(r"^\| \[[^\]]+\]\(([\w.]+)\)", (ROOT / "docs/README.md").read_text(), re.M)
    assert sorted(listed) == sorted(
        page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"
    )


def test_every_note_code_is_documented():
    source = "".join(path.read_text() for path in (ROOT / "ompbind").rglob("*.py"))
    formats = (ROOT / "docs/formats.md").read_text()
    codes = set(re.findall(r'code="([a-z-]+)"', source))
    assert len(codes) >= 8
    assert not [code for code in codes if f"`{code}`" not in formats]


def test_every_variable_a_rank_gets_is_documented():
    openmp = import_module("ompbind.openmp.variables")
    formats = (ROOT / "docs/formats.md").read_text()
    assert not [name for name in openmp.THREAD_COUNTS if f"`{name}`" not in formats]
    readers = (ROOT / "docs/runtimes.md").read_text().partition("\n## Other thread pools\n")[2]
    cells = [line.split(" | ")[0] for line in readers.splitlines() if line.startswith("| `")]
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert listed == {*openmp.THREAD_COUNTS, openmp.LIBUV_VARIABLE}


def test_make_targets_of_the_readme_exist():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", readme, re.M):
        assert re.search(rf"^{target}:", makefile, re.M)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("placement.md", [f"`{name}`" for name in STRATEGIES]),
        ("formats.md", [f"`{name}`" for name, row in FORMATS.items() if ".export." in row.render]),
        ("launchers.md", [f"\n| {launcher.name}" for launcher in LAUNCHERS]),
        ("launchers.md", [f"`{name}`" for launcher in LAUNCHERS for name in launcher.needed]),
        ("vllm.md", [f"`{name}`" for name in FRAMEWORKS]),
    ],
)
def test_every_row_of_a_table_is_documented(page, names):
    text = (ROOT / "docs" / page).read_text()
    assert names
    assert not [name for name in names if name not in text]


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def test_paths_in_contributing_exist():
    named = re.findall(r"`((?:ompbind|docs|tests|benchmarks)/[\w./]*)`", CONTRIBUTING)
    assert len(named) >= 30
    assert not [path for path in named if not (ROOT / path).exists()]


def test_contributing_has_every_subpackage():
    subpackages = {path.parent.name for path in (ROOT / "ompbind").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `ompbind/(\w+)/`", CONTRIBUTING, re.M)) == subpackages - {"shims"}


def test_commits_in_contributing_exist():
    named = re.findall(r"\| (?=\w*\d)([0-9a-f]{7}) \|", CONTRIBUTING)
    assert len(named) == 8
    if not (ROOT / ".git").exists():
        pytest.skip("a release has no history")
    if git("rev-parse", "--is-shallow-repository").stdout != "false\n":
        pytest.skip("the clone has no history")
    assert [git("cat-file", "-t", name).stdout for name in named] == ["commit\n"] * len(named)


def git(*args):
    return subprocess.run(["git", *args], cwd=ROOT, text=True, capture_output=True, check=False)


def flow_steps():
    """Yield (step, caller) for each step of a flow in CONTRIBUTING, each as (file, function)."""
    for kind, text in BLOCK.findall(CONTRIBUTING):
        callers = {}
        for path, gap, name in re.findall(r"^  (\S+\.py)( +)(\w+)", text if kind == "text" else "", re.M):
            depth = len(path + gap)
            yield (path, name), next((callers[d] for d in sorted(callers, reverse=True) if d < depth), None)
            callers = {d: step for d, step in callers.items() if d < depth} | {depth: (path, name)}


@pytest.mark.parametrize(("step", "caller"), list(flow_steps()))
def test_flows_in_contributing_match_the_code(step, caller):
    path, name = step
    assert re.search(rf"^(def|class) {name}\b", (ROOT / "ompbind" / path).read_text(), re.M)
    if caller:
        assert re.search(rf"\b{name}\b", (ROOT / "ompbind" / caller[0]).read_text()), (
            f"called by {caller[1]}?"
        )
