"""Make the virtual environment of the Makefile and install the clone in it, or say what is missing.

    python packaging/make_venv.py VENV [EXTRA]

An environment whose Python is gone, that was moved, or that is half made, is made anew. Pythons that are too
old read this file too. So it has nothing that Python 3.6 does not know.
"""

import os
import re
import shutil
import subprocess
import sys
from typing import NoReturn

from start_zipapp import NEEDED  # type: ignore[import-not-found]  # in the directory of this file

WORKS = "import ompbind, os; print(os.path.samefile(ompbind.__path__[0], 'ompbind'))"
"""Prints True if an environment has the ompbind of the current directory; the Makefile runs the same."""

NO_SPACE = ("No space left on device", "Disk quota exceeded")


def fail(problem: str, hint: str) -> NoReturn:
    """Exit with a message."""
    sys.exit(f"error: {problem}\n  hint: {hint}")


def call(*command: str) -> "tuple[int, str]":
    """Run a command; return its exit code and what it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output = process.communicate()[0].decode("utf-8", "replace")
    return process.returncode, output


def works(python: str) -> bool:
    """Return whether an environment is complete: its Python runs and finds the ompbind of this clone."""
    return os.path.exists(python) and call(python, "-Ic", WORKS) == (0, "True\n")


def check_python() -> None:
    """Fail if this Python cannot make an environment for ompbind."""
    have, need = (".".join(map(str, numbers)) for numbers in (sys.version_info[:2], NEEDED))
    if sys.version_info[:2] < NEEDED:
        names = [f"python{NEEDED[0]}.{minor}" for minor in range(20, NEEDED[1] - 1, -1)]
        newer = [name for name in names if shutil.which(name) and call(name, "-c", "")[0] == 0]
        problem = f"{sys.executable} is Python {have}, and {need} or later is needed"
        fail(
            problem, f"make demo PYTHON={newer[0]}" if newer else f"install it: make demo PYTHON=python{need}"
        )
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            problem = f"{sys.executable} has no module '{module}', which virtual environments need"
            fail(problem, f"apt install python{have}-venv (Debian, Ubuntu), or make demo PYTHON=OTHER-PYTHON")


def make(venv: str, python: str) -> None:
    """Make an environment, in place of one that does not work."""
    if os.path.isdir(venv) and os.listdir(venv) and not os.path.exists(f"{venv}/pyvenv.cfg"):
        fail(f"{venv} is not a virtual environment", "remove it, or choose another directory with VENV=")
    run(venv, sys.executable, "-m", "venv", "--clear", "--without-pip", venv)
    run(venv, python, "-Im", "ensurepip", "--upgrade", "--default-pip")  # venv would hide its errors


def run(venv: str, *command: str) -> None:
    """Run a command; fail with the reason that it has printed."""
    code, output = call(*command)
    if code == 0:
        return
    absent = re.search(r"No matching distribution found for ([^\s;]+)", output)
    if any(text in output for text in NO_SPACE):
        fail(f"no space is left for {venv}", "free 500 MB, or choose another directory with VENV=")
    if absent:
        index = "PIP_INDEX_URL=ADDRESS, or wheels with PIP_NO_INDEX=1 PIP_FIND_LINKS=DIRECTORY"
        fail(f"pip finds no {absent.group(1)} in a package index", f"connect to a network, or set {index}")
    sys.stderr.write(output)
    fail(f"'{' '.join(command[1:3])}' failed, as shown above", f"remove {venv}, and try again")


if __name__ == "__main__":
    directory, extra = [*sys.argv, ""][1:3]
    python = f"{directory}/bin/python"
    if not works(python):
        check_python()
        make(directory, python)
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(directory, *pip, "--editable", f".[{extra}]" if extra else ".")
