"""The man page is current, has all options, and `man` accepts it; the installation has it."""

import os
import re
import subprocess
from importlib import metadata

from ompbind.cli import VERBS
from ompbind.cli.main import load_verb
from tests.live.conftest import required
from tests.packaging.scripts import ROOT, load_script

PAGE = ROOT / "docs/ompbind.1"


def read_page(width):
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANWIDTH": str(width)}
    command = (required("man"), "--warnings", "-l", PAGE)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(".\b", "", done.stdout)


def test_the_page_is_up_to_date_and_installed():
    assert load_script("docs/man_page.py").render_man_page() == PAGE.read_text(), "run 'make docs'"
    shared = ("share", "man", "man1", PAGE.name)
    assert [path for path in metadata.files("ompbind") if path.parts[-4:] == shared]


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
