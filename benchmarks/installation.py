"""A plain installation of ompbind in a directory: a virtual environment with click alone, or one file.

Starting ranks needs no other package. In the environment, click is that of the Python that runs this.
"""

import compileall
import shutil
import subprocess
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.rounds import ROOT

PACKAGE = ROOT / "ompbind"


def install(directory: Path) -> list[str]:
    """Install ompbind in a new virtual environment; return the command that starts it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (site,) = directory.glob("lib/python*/site-packages")
    shutil.copytree(PACKAGE, site / "ompbind", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(Path(click.__file__).parent, site / "click", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(site, quiet=2)
    script = directory / "bin/ompbind"
    script.write_text(f"#!{directory}/bin/python\nfrom ompbind.__main__ import start\n\nstart()\n")
    script.chmod(0o755)
    return [str(script)]


def make_zipapp(path: Path, *words: str, python: str = sys.executable) -> list[str]:
    """Write the zipapp, whose packages are downloaded; return the command that runs it with a Python."""
    script = str(ROOT / "packaging/zipapp.py")
    command = [sys.executable, script, "--output", str(path), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [python, str(path)]
