"""What `make demo` does first: make an environment, or say in one sentence what is missing."""

import ast
import os
import subprocess
import sys

import pytest

from tests.live.conftest import required
from tests.packaging.scripts import ROOT

SCRIPT = ROOT / "packaging/make_venv.py"
RUN = "import runpy, sys; sys.path.insert(0, sys.argv[1].rpartition('/')[0]); del sys.argv[0]; {};"
RUN += "runpy.run_path(sys.argv[0], run_name='__main__')"
UNREACHABLE = {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": "/dev/null"}


def run(venv, lacks="pass"):
    """Run the script with a Python that lacks something; return its exit code and its messages."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    words = [sys.executable, "-c", RUN.format(lacks), str(SCRIPT), str(venv)]
    settings = {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run(words, cwd=ROOT, env={**own, **UNREACHABLE}, **settings)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(("lacks", "problem", "hint"), [
    ("sys.version_info = (3, 10)", "is Python 3.10, and 3.11 or later is needed", "demo PYTHON=python3."),
    ("sys.modules['venv'] = None", "has no module 'venv'", "apt install python3."),
    ("sys.modules['ensurepip'] = None", "has no module 'ensurepip'", "apt install python3."),
    ("open(sys.argv[1] + '/notes', 'w').close()", "is not a virtual environment", "VENV="),
])  # fmt: skip
def test_what_is_missing_is_named_before_anything_is_made(tmp_path, lacks, problem, hint):
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    code, messages = run(tmp_path, lacks)
    said, advice = messages.splitlines()
    assert (code, problem in said, hint in advice) == (1, True, True), messages
    assert not (tmp_path / "pyvenv.cfg").exists()


@pytest.mark.long
@pytest.mark.parametrize("state", ["without its Python", "half made"])
def test_an_environment_that_does_not_work_is_made_anew_and_the_index_is_named(tmp_path, state):
    (tmp_path / "pyvenv.cfg").write_text("home = /nonexistent\n")
    (tmp_path / "bin").mkdir()
    if state != "half made":
        (tmp_path / "bin/python").symlink_to("/nonexistent/python")
    code, messages = run(tmp_path)
    said, advice = messages.splitlines()
    assert (code, "pip finds no hatchling" in said, "PIP_INDEX_URL=" in advice) == (1, True, True), messages
    assert subprocess.run([tmp_path / "bin/python", "-c", ""], check=False).returncode == 0


def test_make_notices_an_environment_that_does_not_work(tmp_path):
    """Its stamp is newer than pyproject.toml, as after the clone was moved or its Python was removed."""
    make, venv = required("make"), tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".installed").touch()
    words = [make, "--no-print-directory", "-n", "demo", f"VENV={venv}", "PYTHON=python3"]
    env = {**os.environ, "MAKEFLAGS": "", "MAKELEVEL": ""}
    planned = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
    assert planned.startswith(f"python3 packaging/make_venv.py {venv}\n")
