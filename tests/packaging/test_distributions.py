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
    env = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=env, **settings, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The directory of programs of a new environment that has the wheel, built from the sdist."""
    built, home = (tmp_path_factory.mktemp(name) for name in ("dist", "installed"))
    subprocess.run([sys.executable, "-m", "build", "--outdir", built, ROOT], check=True, timeout=300)
    subprocess.run([sys.executable, "-m", "venv", home], check=True, timeout=60)
    subprocess.run([home / "bin/pip", "install", "-q", *built.glob("*.whl")], check=True, timeout=300)
    return home / "bin"


def test_the_installed_command_works(installed):
    assert run(installed / "ompbind", "--version").startswith("ompbind ")
    assert run(installed / "ompbind", "run", "-n", "1", "--", "sh", "-c", "echo rank $RANK") == "rank 0\n"
    run(installed / "pip", "check")
    assert (installed.parent / "share/man/man1/ompbind.1").exists()


def test_type_checkers_see_the_types_of_the_installed_package(installed, tmp_path):
    lines = ("from ompbind import Plan, Request, make_plan, read_machine\n",
             "plan: Plan = make_plan(read_machine(), Request(ranks=2))\n")  # fmt: skip
    (tmp_path / "right.py").write_text("".join(lines))
    (tmp_path / "wrong.py").write_text("from ompbind import Request\n\nRequest(ranks='two')\n")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed / "python"]
    run(*mypy, "right.py", cwd=tmp_path)
    done = subprocess.run([*mypy, "wrong.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert 'Argument "ranks" to "Request" has incompatible type "str"' in done.stdout
