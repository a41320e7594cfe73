"""Imports from an archive: the same modules as Python's own imports, and the archive is opened once."""

import importlib.util
import os
import py_compile
import subprocess
import sys
import zipfile
import zipimport

import pytest

from benchmarks.installation import make_archive
from ompbind.cli.archive_imports import make_archive_finder

FILES = ("__init__", "module", "inner/__init__", "inner/module")


@pytest.fixture
def write(tmp_path):
    """Write an archive of a package, and return the package as Python's own import makes it."""

    def make(*, compression=zipfile.ZIP_STORED, sources=(), change=lambda content: content):
        path = tmp_path / "sample.pyz"
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name in FILES:
                source = tmp_path / "module.py"
                source.write_text(f"name = {name!r}\n" + "value = 1\n" * 100)
                compiled = py_compile.compile(source, cfile=tmp_path / "module.pyc", dfile=f"{name}.py")
                with open(compiled, "rb") as file:
                    archive.writestr(f"sample/{name}.pyc", change(file.read()) if name != "__init__" else b"")
                if name in sources:
                    archive.write(source, f"sample/{name}.py")
            archive.writestr("sample/__init__.py", "")
        importer = zipimport.zipimporter(str(path))
        package = importlib.util.module_from_spec(importer.find_spec("sample"))
        return importer, package

    return make


@pytest.mark.parametrize("name", ["sample.module", "sample.inner", "sample.inner.module"])
def test_modules_are_as_those_of_python(write, name):
    importer, package = write()
    found = make_archive_finder(package).find_spec(name)
    inner = zipimport.zipimporter(f"{importer.archive}/{'/'.join(name.split('.')[:-1])}")
    expected = inner.find_spec(name.rpartition(".")[2])
    assert found.origin == expected.origin
    assert found.submodule_search_locations == expected.submodule_search_locations
    assert found.has_location
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    assert f"sample/{module.name}.pyc" in module.__file__


@pytest.mark.parametrize(
    "changes",
    [
        {"compression": zipfile.ZIP_DEFLATED},
        {"sources": FILES[1:]},
        {"change": lambda content: b"\0\0\r\n" + content[4:]},
        {"change": lambda content: b""},
    ],
    ids=["compressed", "with sources", "another Python", "empty"],
)
def test_unusual_modules_are_left_to_python(write, changes):
    _, package = write(**changes)
    finder = make_archive_finder(package)
    assert finder.find_spec("sample.module") is None
    assert finder.find_spec("sample.inner.module") is None


def test_other_and_missing_modules_are_left_to_python(write):
    _, package = write()
    finder = make_archive_finder(package)
    assert [finder.find_spec(name) for name in ("json", "sample.missing", "samples.module")] == [None] * 3


def test_a_package_in_a_directory_has_no_archive():
    import ompbind

    assert make_archive_finder(ompbind) is None


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The start of the command line of ompbind as one file."""
    return make_archive(tmp_path_factory.mktemp("archive"), sys.executable)


def run(archive, *words, **env):
    done = subprocess.run(
        [sys.executable, "-S", *archive, *words], env={"PATH": os.environ["PATH"], **env},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_ranks_start_from_an_archive_without_other_packages(archive, tmp_path):
    env = {"OMPBIND_RUNTIME_DIR": str(tmp_path)}
    assert run(archive, "run", "-n", "2", "--share", "--", "echo", "hi", **env).stdout == "hi\nhi\n"
    assert run(archive, "exec", "--", "echo", "hi", **env).stdout == "hi\n"


def test_modules_of_the_archive_are_read_by_the_finder(archive):
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from ompbind.cli.quick_imports import start_quick_imports
start_quick_imports()
import ompbind.errors
print(type(ompbind.errors.__loader__).__name__)
"""
    command = [sys.executable, "-S", "-c", code, *archive]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "_LoaderOfCode\n", done.stderr
