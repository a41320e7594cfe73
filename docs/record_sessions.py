"""Run the commands of the pages about bench again, and write what they print into the pages.

    make sessions

It runs each command of a block "console", in the order of the pages, in one directory with the programs of
docs/examples/. The name of this machine is replaced. Other processes disturb the sessions.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copy

DOCS = Path(__file__).parent
PAGES = (DOCS / "benchmarking.md",)
BLOCK = re.compile(r"```console\n\$ (.*)\n(?:.*\n)*?```")
"""A command of a page and its output."""

HOST = "node1"
"""The name of the machine in the pages."""


def record_sessions(text: str, directory: Path) -> str:
    """Return a page with new output of its commands, which write other files into `directory`."""
    for program in (DOCS / "examples").glob("*.py"):
        copy(program, directory)
    return BLOCK.sub(lambda block: f"```console\n$ {block[1]}\n{_run(block[1], directory)}```", text)


def _run(command: str, directory: Path) -> str:
    """Return what a command prints; raises RuntimeError if ompbind could not do it."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
    done = subprocess.run(
        command, shell=True, cwd=directory, env={**os.environ, "PATH": path}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return re.sub(rf"(machine: |UTC, ){re.escape(socket.gethostname())},", rf"\1{HOST},", done.stdout)


def main() -> None:
    """Record the pages."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        for page in PAGES:
            page.write_text(record_sessions(page.read_text(), directory))


if __name__ == "__main__":
    main()
