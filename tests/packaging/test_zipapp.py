"""The zipapp: the same bytes everywhere, a message for old Pythons; test_every_verb.py runs its verbs.

Tests of the whole file read its path from OMPTEST_ZIPAPP, because `make zipapp` downloads packages.
"""

import ast
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.live.conftest import run_program
from tests.packaging.scripts import ROOT

PYTHONS = {sys.executable, *filter(os.path.exists, (f"/usr/bin/python3.{minor}" for minor in range(11, 16)))}


def build(output, *words, python=sys.executable, root=ROOT, umask=0o022, **env):
    command = (python, root / "packaging/zipapp.py", "--output", output, *words)
    run_program(*command, check=True, umask=umask, env=env, timeout=120)
    return output.read_bytes()


def copy_sources(target):
    """Copy what the zipapp is made from, with other times and permissions, and files of another Python."""
    how = {"copy_function": shutil.copyfile, "ignore": shutil.ignore_patterns("__pycache__")}
    for name in ("ompbind", "packaging", "docs"):
        shutil.copytree(ROOT / name, target / name, **how)
    shutil.copyfile(ROOT / "LICENSE", target / "LICENSE")
    for path in target.rglob("*.*"):
        path.chmod(0o700)
    (target / "ompbind/__pycache__").mkdir()
    (target / "ompbind/__pycache__/left.cpython-311.pyc").write_bytes(b"from another Python")
    return target


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    path = tmp_path_factory.mktemp("zipapp") / "ompbind.pyz"
    build(path, "--without-packages")
    return path


def test_the_same_tree_gives_the_same_bytes(tmp_path, bare):
    elsewhere = copy_sources(tmp_path / "other directory")
    settings = {"umask": 0o077, "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "1", "PYTHONHASHSEED": "7"}
    for python in PYTHONS:
        again = build(tmp_path / "again.pyz", "--without-packages", python=python, root=elsewhere, **settings)
        assert again == bare.read_bytes(), python
    (elsewhere / "ompbind/text.py").write_text('"""Another text."""\n')
    changed = build(tmp_path / "changed.pyz", "--without-packages", root=elsewhere)
    assert changed != bare.read_bytes()
    pages = {f"ompbind/pages/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages <= {*zipfile.ZipFile(bare).namelist()}


PRETEND = "import runpy, sys; del sys.argv[0]; sys.version_info = (3, 10, 4); "
PRETEND += "runpy.run_path(sys.argv[0], run_name='__main__')"


def test_a_python_that_is_too_old_can_read_the_first_module_which_says_so(bare):
    text = (ROOT / "packaging/start_zipapp.py").read_text()
    ast.parse(text, feature_version=(3, 6))
    ((major, minor),) = re.findall(r"^NEEDED = \((\d+), (\d+)\)$", text, re.M)
    assert f'requires-python = ">={major}.{minor}"' in (ROOT / "pyproject.toml").read_text()
    for verb, code in (("run", 125), ("exec", 125), ("plan", 2)):
        done = run_program(sys.executable, "-c", PRETEND, bare, verb)
        assert done.returncode == code
        assert f"is Python 3.10, and {major}.{minor} or later is needed" in done.stderr


@pytest.mark.part("packages")
def test_the_whole_zipapp(tmp_path):
    """It has licenses and nothing compiled, is the same when built again, and runs as a link and unpacked."""
    path = Path(os.environ["OMPTEST_ZIPAPP"]).resolve()
    names = zipfile.ZipFile(path).namelist()
    licensed = {name.partition("-")[0] for name in names if "/licenses/" in name}
    tops = {name.partition("/")[0] for name in names}
    assert licensed | {"LICENSE"} <= tops
    assert (licensed, tops & {"psutil", "pygments", "markdown_it"}) == ({"click", "rich"}, set())
    assert not [name for name in names if name.endswith((".so", ".pyc", ".pyd"))]
    assert build(tmp_path / "again.pyz", root=copy_sources(tmp_path / "copy")) == path.read_bytes()
    (tmp_path / "ompbind").symlink_to(path)
    line = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": "ompbind\ninsp", "COMP_CWORD": "1"}
    completed = run_program("ompbind", env={"PATH": f"{tmp_path}:{os.environ['PATH']}", **line})
    assert completed.stdout.startswith("plain,inspect"), completed.stderr
    zipfile.ZipFile(path).extractall(tmp_path / "unpacked")
    assert "1 rank" in run_program(sys.executable, "-I", "-S", tmp_path / "unpacked", "plan").stdout
