"""A plain installation of ompbind in a directory: a virtual environment without other packages, or one file.

Starting ranks needs nothing outside of Python's standard library, so no package is downloaded.
"""

import compileall
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.rounds import ROOT

PACKAGE = ROOT / "ompbind"


def install(directory: Path) -> list[str]:
    """Install ompbind in a new virtual environment; return the command that starts it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (site,) = directory.glob("lib/python*/site-packages")
    _copy(site / "ompbind")
    compileall.compile_dir(site / "ompbind", quiet=2)
    script = directory / "bin/ompbind"
    script.write_text(f"#!{directory}/bin/python\n{(PACKAGE / '__main__.py').read_text()}")
    script.chmod(0o755)
    return [str(script)]


def make_archive(directory: Path, python: str) -> list[str]:
    """Write ompbind and its compiled modules as one file for zipapp; return the command that starts it."""
    source = directory / "source"
    _copy(source / "ompbind")
    compileall.compile_dir(source / "ompbind", quiet=2, legacy=True)
    for path in source.rglob("*.py"):
        path.unlink()
    archive = directory / "ompbind.pyz"
    zipapp.create_archive(source, archive, interpreter=python, main="ompbind.__main__:start")
    return [str(archive)]


def _copy(target: Path) -> None:
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
