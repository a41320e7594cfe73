"""What is written is true: examples run, options exist, the reference is current, links lead somewhere."""

import re
import shlex
import subprocess
import tarfile
from importlib import import_module, util
from itertools import takewhile
from pathlib import Path

import click
import pytest

from ompbind.cli.main import VERBS, cli
from tests.live.conftest import clean_environment
from tests.machines import Shape, write_tree

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
    if "machine.tar.gz" in text or "synthetic:" in text
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the recording that the examples use."""
    made = tmp_path_factory.mktemp("docs")
    files = {"proc/hwloc-nofile-info": "Architecture: x86_64\n"}
    tree = write_tree(made / "machine", Shape(packages=2, cores=4, smt=2), files)
    with tarfile.open(made / "machine.tar.gz", "w:gz") as archive:
        archive.add(tree, arcname="machine")
    return made


@pytest.mark.parametrize("text", SESSIONS)
def test_sessions_print_what_the_page_shows(folder, text):
    command, _, expected = text.partition("\n")
    done = subprocess.run(
        command.removeprefix("$ "), shell=True, cwd=folder, env=clean_environment(), text=True, timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.stdout == expected


def test_there_are_sessions():
    assert len(SESSIONS) >= 5


def command_lines():
    """Every command line of ompbind that a page or a help text shows."""
    for kind in ("sh", "console"):
        for page, text in blocks(kind):
            for line in text.splitlines():
                found = re.search(rf"\bompbind ({KNOWN})\b[^\"#>]*", line)
                shown = kind == "sh" or line.startswith("$ ")
                if found and shown:
                    yield page, command_of(found)
    for verb in VERBS:
        for _, line in cli.get_command(click.Context(cli), verb).examples:
            yield verb, command_of(re.search(rf"ompbind ({KNOWN})\b[^\"]*", line))


def command_of(found):
    """The command line that was found; one inside of $( ) ends with the bracket."""
    inside = found.string[: found.start()].endswith("$(")
    return (found[0].partition(")")[0] if inside else found[0]).rstrip()


@pytest.mark.parametrize(("page", "line"), sorted(set(command_lines())))
def test_command_lines_are_ones_that_ompbind_takes(page, line):
    verb, *args = takewhile(lambda word: word != "|", shlex.split(line)[1:])
    cli.get_command(click.Context(cli), verb).make_context(verb, args)


def test_the_reference_is_up_to_date():
    spec = util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    generate = util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.REFERENCE.read_text() == generate.render_reference(), "run 'make docs'"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


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


def test_the_commands_of_the_readme_are_there():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", readme, re.M):
        assert re.search(rf"^{target}:", makefile, re.M)
