"""The man page is current, has all options, and formatters accept it; `man ompbind` finds it."""

import os
import re
import subprocess
from importlib import metadata, util
from pathlib import Path

import pytest

from ompbind.cli.main import load_verb
from ompbind.cli.verbs import VERBS
from tests.live.conftest import required

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/ompbind.1"
SHARED = ("share", "man", "man1", "ompbind.1")


@pytest.fixture(scope="module")
def man_page():
    spec = util.spec_from_file_location("man_page", ROOT / "docs/man_page.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command, text=None, **env):
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **env},
    )  # fmt: skip


def read_page(width=80, text=None):
    """Return the page as man shows it, without bold and italic; fails if there is a warning."""
    required("man")
    done = run("man", "--warnings", "-l", "-" if text else PAGE, text=text, MANWIDTH=str(width))
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(".\b", "", done.stdout)


def test_the_page_is_up_to_date(man_page):
    assert man_page.render_man_page() == PAGE.read_text(), "run 'make docs'"


@pytest.mark.parametrize(
    "command",
    [("mandoc", "-Tlint", "-W", "warning", PAGE), ("groff", "-man", "-Tutf8", "-ww", "-z", PAGE)],
    ids=lambda command: command[0],
)
def test_formatters_accept_the_page(command):
    required(command[0])
    done = run(*command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_fits_and_has_all_options_of_all_verbs():
    for width in (60, 160):
        lines = read_page(width).splitlines()
        assert [line for line in lines if len(line) > width and not line.startswith(" " * 11)] == []
        assert [line for line in lines if re.search(r"\\|\w[-‐]$", line)] == []  # no escapes, no broken words
    text = "\n".join(lines)
    for verb in VERBS:
        assert re.search(rf"^ +ompbind {verb}\b", text, re.M)
        for option in load_verb(verb).options:
            names = re.escape(", ".join(option.names))
            assert re.search(rf"^ {{7}}{names}(?![\w-])", text, re.M), option.names


def test_the_installation_has_the_page():
    assert [path for path in metadata.files("ompbind") if path.parts[-4:] == SHARED]
