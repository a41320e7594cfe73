"""The commands of docs/installation.md install a working ompbind, in a clone and with a home of the test.

They download packages.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/installation.md").read_text()
TABLE = re.findall(r"^\| (pipx|uv|pip) \| `(.*)` \| `(.*)` \|$", PAGE, re.MULTILINE)
"""How to upgrade and how to uninstall, by the name of the tool."""

pytestmark = pytest.mark.part("packages")


def read_blocks(section):
    """Return the commands of each block of a section."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    """A directory with pipx and uv, and nothing else."""
    directory = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", directory], check=True, timeout=120)
    pip = [directory / "bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", "pipx", "uv"], check=True, timeout=300)
    programs = directory / "programs"
    programs.mkdir()
    for name in ("pipx", "uv", "uvx"):
        (programs / name).symlink_to(directory / "bin" / name)
    return programs


def leave_out(directory, names):
    """Return the names that a clone would not have: files of tools in the repository itself."""
    made = {"build", "dist", "site"} & set(names) if directory == str(ROOT) else set()
    return {name for name in names if name.startswith(".") or name == "__pycache__"} | made


@pytest.fixture
def shell(tools, tmp_path):
    """Run commands in a copy of the repository, as a user with an empty home; return their output."""
    clone, home = tmp_path / "clone", tmp_path / "home"
    shutil.copytree(ROOT, clone, ignore=leave_out)
    home.mkdir()
    others = [path for path in os.environ["PATH"].split(":") if not Path(path, "ompbind").exists()]
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "UV_"))}
    kept["UV_SYSTEM_CERTS"] = "true"  # as pip: the index may have a certificate that only this machine knows
    env = {**kept, "HOME": str(home), "PATH": ":".join([f"{home}/.local/bin", str(tools), *others])}

    def run(commands):
        done = subprocess.run(
            ["sh", "-ec", commands], cwd=clone, env=env, timeout=300, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


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
    (install,) = (block for block in read_blocks("With pipx or uv") if block.startswith(f"{tool} "))
    assert "1 rank" in shell(f"{install}ompbind plan\n{upgrade}\nompbind plan")
    if tool == "pipx" and shutil.which("man"):
        assert "ompbind.1" in shell("man -w ompbind")
    shell(f"{uninstall}; ! ompbind plan")


def test_uv_runs_ompbind_without_installing_it(shell):
    (command,) = (block for block in read_blocks("With pipx or uv") if block.startswith("uvx "))
    assert "1 rank" in shell(command)
