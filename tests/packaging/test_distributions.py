"""The wheel works where it is installed. `make release-check` compares its files, and those of the sdist."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.conftest import claims, clean_environment

__all__ = ["claims"]  # a fixture

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.part("packages")


def run(*command, **options):
    settings = {"capture_output": True, "text": True, "timeout": 300, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, **{**settings, "env": clean_environment(), **options})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


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
