"""The wheel and the source distribution have the right files, and the wheel works where it is installed."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.live.conftest import claims, clean_environment

__all__ = ["claims"]  # a fixture

ROOT = Path(__file__).parent.parent.parent

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("OMPTEST_PACKAGING"), reason="it takes the network; .ci/run runs it"
    ),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release has no list of files to compare with"),
]


def run(*command, **options):
    settings = {"capture_output": True, "text": True, "timeout": 300, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, **{**settings, "env": clean_environment(), **options})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def repository_files(directory):
    """The files of a directory of the repository that git does not ignore."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", directory, cwd=ROOT)
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The directory of both distributions; the wheel is built from the source distribution."""
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", directory, ROOT], check=True, timeout=300)
    return directory


@pytest.fixture(scope="module")
def wheel(built):
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The directory of programs of a new environment that has the wheel; made with the system's Python."""
    home = tmp_path_factory.mktemp("installed")
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    subprocess.run([python, "-m", "venv", home], check=True, timeout=60)
    subprocess.run([home / "bin/pip", "install", "--quiet", wheel], check=True, timeout=300)
    return home / "bin"


def test_the_source_distribution_has_every_file_of_the_repository(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert names == repository_files(".") | {"PKG-INFO"}


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    others = [name for name in names if not name.startswith("ompbind/")]
    assert set(names) - set(others) == repository_files("ompbind")
    about = r"dist-info/(METADATA|WHEEL|RECORD|licenses/LICENSE)"
    kinds = rf"ompbind-[\w.]+\.({about}|data/(scripts/ompbind|data/share/.*))"
    assert [name for name in others if not re.fullmatch(kinds, name)] == []


def test_the_installed_command_works(installed):
    assert run(installed / "ompbind", "--version").startswith("ompbind ")
    assert run(installed / "ompbind", "run", "-n", "1", "--", "sh", "-c", "echo rank $RANK") == "rank 0\n"
    run(installed / "pip", "check")
    page = installed.parent / "share/man/man1/ompbind.1"
    assert page.exists() == (ROOT / "docs/ompbind.1").exists()


def test_type_checkers_see_the_types_of_the_installed_package(installed, tmp_path):
    """A project that uses the wheel profits from its types: a wrong call is an error."""
    right = tmp_path / "right.py"
    lines = ("from ompbind import Plan, Request, make_plan, read_machine", "",
             "plan: Plan = make_plan(read_machine(), Request(ranks=2))", "")  # fmt: skip
    right.write_text("\n".join(lines))
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from ompbind import Request\n\nRequest(ranks='two')\n")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed / "python"]
    run(*mypy, right, cwd=tmp_path)
    done = subprocess.run([*mypy, wrong], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert 'Argument "ranks" to "Request" has incompatible type "str"' in done.stdout
