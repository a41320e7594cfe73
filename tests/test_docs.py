"""The documentation is correct: examples run, options exist, reference and man page are right, links work."""

import os
import re
import shlex
import subprocess
import tempfile
from contextlib import suppress
from importlib import metadata
from itertools import takewhile
from pathlib import Path

import pytest

from ompbind.cli import VERBS
from ompbind.cli.main import load_verb
from ompbind.cli.plan import FORMATS
from ompbind.compat.frameworks import FRAMEWORKS
from ompbind.errors import MaskError
from ompbind.launchers.allocation import BATCH_SYSTEMS
from ompbind.launchers.launchers import LAUNCHERS
from ompbind.openmp.variables import LIBUV_VARIABLE, THREAD_COUNTS
from ompbind.planning.strategies import STRATEGIES
from tests.live.conftest import required, two_cpus
from tests.packaging.scripts import ROOT, load_script

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
KNOWN = "|".join(VERBS)
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.S)
BLOCKS = [(page.name, kind, text) for page in PAGES for kind, text in BLOCK.findall(page.read_text())]

sessions, generate = load_script("docs/sessions.py"), load_script("docs/generate.py")
SESSIONS = list(sessions.find_sessions())
RECORDED = [(page.name, reason) for page, reason, _ in SESSIONS if reason]


@pytest.fixture
def home(request):
    with tempfile.TemporaryDirectory(dir="/tmp") as made:  # a short name, as those of home directories
        yield sessions.make_home(Path(made), request.param)


RUN = [(page, text) for page, reason, text in SESSIONS if not reason]


@pytest.mark.parametrize(
    ("home", "text"), RUN, indirect=["home"], ids=lambda value: getattr(value, "name", "")
)
def test_sessions_print_what_the_page_shows(home, text):
    assert text.startswith("$ "), "no command: use the language sh or text"
    if "ompbind run" in text:
        two_cpus()
    assert sessions.run_session(text, home) == text, "run 'make docs'"


def test_few_sessions_are_recorded_and_every_session_is_a_console_block():
    by_tests = [(page, reason) for page, reason in RECORDED if reason.startswith("tests/")]
    assert not [page for page, test in by_tests if page not in (ROOT / test).read_text()]
    assert len(RECORDED) - len(by_tests) <= 5
    assert len(SESSIONS) - len(RECORDED) >= 18
    text = "".join(page.read_text() for page in PAGES)
    assert len(SESSIONS) == text.count("```console\n")
    others = [block for kind, block in BLOCK.findall(text) if kind != "console"]
    assert not [block for block in others if re.search(r"^\$ ", block, re.M)]


def command_lines():
    for page, kind, text in BLOCKS:
        for line in re.sub(r"\\\n *", "", text).splitlines():
            found = re.search(rf"\bompbind ({KNOWN})\b[^\"#>]*", line)
            if found and (kind in ("sh", "bash", "zsh", "fish") or line.startswith("$ ")):
                yield page, command_of(found)
    for verb in VERBS:
        for _, line in load_verb(verb).examples:
            yield verb, command_of(re.search(rf"ompbind ({KNOWN})\b[^\"]*", line))


def command_of(found):
    """Return the command line of a match; inside of $( ) it stops before the bracket."""
    inside = found.string[: found.start()].endswith("$(")
    return (found[0].partition(")")[0] if inside else found[0]).rstrip()


PLANNED = [
    (ROOT / f"docs/{'configuration' if '--preset' in line else 'running'}.md", line)
    for verb in ("run", "plan", "topo")
    for _, line in load_verb(verb).examples
    if not line.startswith("srun")
]


@pytest.mark.parametrize(("home", "line"), PLANNED, indirect=["home"])
def test_examples_of_help_texts_work_on_a_sample_machine(home, line):
    env = {**sessions.make_environment(home), "OMPBIND_TOPOLOGY": "sample:dgx-a100", "OMPBIND_DRY_RUN": "1"}
    done = subprocess.run(line, shell=True, cwd=home, env=env, capture_output=True, text=True, timeout=60)
    if "no libtcmalloc in" in done.stderr and not os.environ.get("OMPTEST_ALL"):
        pytest.skip("libtcmalloc is not installed: apt install libtcmalloc-minimal4")
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr


@pytest.fixture
def presets(tmp_path, monkeypatch, request):
    """The first example of the page about configuration files, and the groups of the page."""
    path = tmp_path / "ompbind/ompbind.toml"
    path.parent.mkdir()
    pages = {"configuration.md", request.node.callspec.params["page"]}
    tables = [(page, text) for page, kind, text in BLOCKS if kind == "toml" and page in pages]
    presets = next(text for page, text in tables if page == "configuration.md")
    path.write_text("".join([presets, *(text for _, text in tables if "[group." in text)]))
    path.chmod(0o644)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("page", "line"), sorted(set(command_lines())))
def test_ompbind_accepts_the_command_lines_of_pages(page, line, presets):
    verb, *args = takewhile(lambda word: word != "|", shlex.split(line)[1:])
    with suppress(MaskError):  # pages show errors of masks too
        load_verb(verb).make_context(verb, args)


def test_the_reference_the_man_page_and_the_examples_in_pages_are_up_to_date():
    assert generate.REFERENCE.read_text() == generate.render_reference(), "run 'make docs'"
    assert generate.MAN_PAGE.read_text() == generate.render_man_page(), "run 'make docs'"
    shown = [name for page in PAGES for name in generate.EXAMPLE.findall(page.read_text())]
    assert sorted(shown) == sorted(f"examples/{path.name}" for path in (ROOT / "docs/examples").glob("*.*"))
    for page in PAGES:
        assert generate.render_page(page.read_text()) == page.read_text(), "run 'make docs'"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page):
    for target, heading in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", page.read_text()):
        linked = (page.parent / target) if target else page
        assert linked.exists(), target
        assert not heading or heading in headings(linked), (target, heading)


def headings(page):
    """Return the names by which links reach the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)", BLOCK.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_all_pages_are_listed_and_have_few_words():
    listed = re.findall(r"^\| \[[^\]]+\]\(([\w.-]+)\)", (ROOT / "docs/README.md").read_text(), re.M)
    texts = {page.name: page.read_text() for page in (ROOT / "docs").glob("*.md")}
    assert sorted([*listed, "README.md"]) == sorted(texts)
    assert len(texts) <= 26
    assert sum(len(text.split()) for text in texts.values()) <= 40_000, "rewrite a page shorter"
    assert not [name for name, text in texts.items() if text.count("\n") > 250 and name != "reference.md"]


def test_every_variable_of_a_rank_is_documented():
    formats = (ROOT / "docs/formats.md").read_text()
    assert not [name for name in THREAD_COUNTS if f"`{name}`" not in formats]
    readers = (ROOT / "docs/runtimes.md").read_text().partition("## Other thread pools\n")[2]
    cells = [line.split(" | ")[0] for line in readers.splitlines() if line.startswith("| `")]
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert listed == {*THREAD_COUNTS, LIBUV_VARIABLE}, "docs/runtimes.md lists other variables"


@pytest.mark.parametrize(("page", "names"), [
    ("placement.md", [f"`{name}`" for name in STRATEGIES]),
    ("formats.md", [f"`{name}`" for name, row in FORMATS.items() if "export" in row.render.__module__]),
    ("mpi-slurm.md", [f"\n| {launcher.name}" for launcher in LAUNCHERS]),
    ("mpi-slurm.md", [f"`{name}`" for launcher in LAUNCHERS for name in launcher.needed]),
    ("mpi-slurm.md", [f"\n| {system.name} |" for system in BATCH_SYSTEMS]),
    ("serve.md", [f"`{name}`" for name in FRAMEWORKS]),
])  # fmt: skip
def test_every_row_of_a_table_is_documented(page, names):
    text = (ROOT / "docs" / page).read_text()
    assert names
    assert not [name for name in names if name not in text]


def test_functions_of_the_flow_exist_in_the_order_of_the_page():
    flow = CONTRIBUTING.partition("## The flow of a run")[2].partition("## make demo")[0]
    lines, source = re.findall(r"^ {2,}(?:([\w/]+\.py) +)?(\w+) {2,}\S", flow, re.M), ""
    assert len(lines) >= 24
    for path, name in lines:
        source = (ROOT / "ompbind" / path).read_text() if path else source
        assert re.search(rf"^ *(def|class) {name}\b", source, re.M), (path, name)


def test_paths_and_rooms_in_contributing_exist():
    named = re.findall(r"`((?:ompbind|docs|tests|benchmarks)/[\w./]*)`", CONTRIBUTING)
    assert len(named) >= 30
    assert not [path for path in named if not (ROOT / path).exists()]
    rooms = {path.parent.name for path in (ROOT / "ompbind").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `ompbind/(\w+)/`", CONTRIBUTING, re.M)) == rooms - {"shims"}


def test_the_man_page_is_installed_fits_and_has_all_options_of_all_verbs():
    """And `man` accepts it."""
    assert [path for path in metadata.files("ompbind") if path.match("share/man/man1/ompbind.1")]
    for width in (60, 160):
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANWIDTH": str(width)}
        command = (required("man"), "--warnings", "-l", generate.MAN_PAGE)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        text = re.sub(".\b", "", done.stdout)
        lines = text.splitlines()
        assert [line for line in lines if len(line) > width and not line.startswith(" " * 11)] == []
        assert [line for line in lines if re.search(r"\\|\w[-‐]$", line)] == []  # no escapes, no broken words
    for verb in VERBS:
        assert re.search(rf"^ +ompbind {verb}\b", text, re.M)
        for option in load_verb(verb).options:
            names = re.escape(", ".join(option.names))
            assert re.search(rf"^ {{7}}{names}(?![\w-])", text, re.M), option.names
