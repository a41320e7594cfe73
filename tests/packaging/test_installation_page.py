"""The wheel works where it is installed, and so do the commands of docs/installation.md."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.live.conftest import clean_environment
from tests.packaging.scripts import ROOT

PAGE = (ROOT / "docs/installation.md").read_text()
TABLE = re.findall(r"^\| (pipx|uv|pip) \| `(.*)` \| `(.*)` \|$", PAGE, re.MULTILINE)
"""How to upgrade and how to uninstall, by the name of the tool."""

pytestmark = pytest.mark.part("packages")


def run(*command, **options):
    settings = {"capture_output": True, "text": True, "timeout": 300, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, **{**settings, **options})
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_works_and_has_types(tmp_path):
    env = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}
    run(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", ROOT)
    new = tmp_path / "a user's ü"
    run(sys.executable, "-m", "venv", new)
    run(new / "bin/python", "-m", "pip", "install", "-q", *(tmp_path / "dist").glob("*.whl"))
    ompbind = new / "bin/ompbind"
    assert run(ompbind, "run", "-n", "1", "--", "sh", "-c", "echo rank $RANK", env=env) == "rank 0\n"
    run(new / "bin/python", "-m", "pip", "check")
    assert (new / "share/man/man1/ompbind.1").exists()
    lines = ("from ompbind import Plan, Request, make_plan, read_machine\n",
             "plan: Plan = make_plan(read_machine(), Request(ranks=2))\n")  # fmt: skip
    (tmp_path / "right.py").write_text("".join(lines))
    (tmp_path / "wrong.py").write_text("from ompbind import Request\n\nRequest(ranks='two')\n")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", new / "bin/python"]
    run(*mypy, "right.py", cwd=tmp_path, env=env)
    done = subprocess.run([*mypy, "wrong.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert 'Argument "ranks" to "Request" has incompatible type' in done.stdout


def read_blocks(section, start=""):
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [block for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if block.startswith(start)]


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tools")
    run(sys.executable, "-m", "venv", directory)
    run(directory / "bin/pip", "install", "-q", "--disable-pip-version-check", "pipx", "uv")
    (directory / "programs").mkdir()
    for name in ("pipx", "uv", "uvx"):
        (directory / "programs" / name).symlink_to(directory / "bin" / name)
    return directory / "programs"


@pytest.fixture
def shell(tools, tmp_path):
    clone, home = tmp_path / "clone", tmp_path / "home"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "__pycache__", "dist"))
    home.mkdir()
    others = [path for path in os.environ["PATH"].split(":") if not os.path.exists(f"{path}/ompbind")]
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "UV_"))}
    kept["UV_SYSTEM_CERTS"] = "true"  # as pip: the index may have a certificate that only this machine knows
    env = {**kept, "HOME": str(home), "PATH": ":".join([f"{home}/.local/bin", str(tools), *others])}
    return lambda commands: run("sh", "-ec", commands, cwd=clone, env=env)


@pytest.mark.parametrize("section", ["With pip", "Without internet", "One file: the zipapp"])
def test_the_commands_of_a_section_work(shell, section):
    blocks = read_blocks(section)
    output = shell("".join(blocks))
    assert "1 rank" in output or "plan" not in blocks[-1]


@pytest.mark.parametrize(("tool", "upgrade", "uninstall"), TABLE)
def test_tools_install_upgrade_and_uninstall(shell, tool, upgrade, uninstall):
    if tool == "pip":
        script = (
            f"python3 -m venv v; . v/bin/activate; pip install .; {upgrade}; ompbind plan; {uninstall} -y"
        )
        assert "1 rank" in shell(f"{script}; ! ompbind plan")
        return
    (install,) = read_blocks("With pipx or uv", f"{tool} ")
    assert "1 rank" in shell(f"{install}ompbind plan\n{upgrade}\nompbind plan")
    if tool == "pipx" and shutil.which("man"):
        assert "ompbind.1" in shell("man -w ompbind")
    shell(f"{uninstall}; ! ompbind plan")
    if tool == "uv":  # it also runs ompbind without installing it
        assert "1 rank" in shell(read_blocks("With pipx or uv", "uvx ")[0])
