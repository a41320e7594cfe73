"""The zipapp: the same bytes everywhere, a message for old Pythons, and each verb without other packages.

Tests of the whole file read it from the variable OMPTEST_ZIPAPP, because `make zipapp` downloads packages:

    make zipapp && OMPTEST_ZIPAPP=dist/ompbind.pyz python -m pytest tests/packaging/test_zipapp.py
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
OTHER_PYTHONS = [f"/usr/bin/python3.{minor}" for minor in (11, 12, 13, 14)]


def build(output, *words, python=sys.executable, root=ROOT, umask=0o022, **env):
    """Build a zipapp and return its bytes."""
    command = [python, root / "packaging/zipapp.py", "--output", output, *words]
    subprocess.run(
        command, check=True, timeout=120, capture_output=True, cwd=output.parent, umask=umask,
        env={**os.environ, **env},
    )  # fmt: skip
    return output.read_bytes()


def copy_sources(target):
    """Copy what the zipapp is made from, with other times, permissions and order of files."""
    for path in sorted((ROOT / "ompbind").rglob("*.py"), reverse=True):
        new = target / path.relative_to(ROOT)
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, new)
    for path in (ROOT / "ompbind").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            shutil.copyfile(path, target / path.relative_to(ROOT))
            (target / path.relative_to(ROOT)).chmod(0o700)
    shutil.copytree(PACKAGING, target / "packaging")
    shutil.copyfile(ROOT / "LICENSE", target / "LICENSE")
    (target / "ompbind/__pycache__").mkdir()
    (target / "ompbind/__pycache__/left.cpython-311.pyc").write_bytes(b"from another Python")
    return target


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The zipapp without the packages, and the command line that runs it."""
    path = tmp_path_factory.mktemp("zipapp") / "ompbind.pyz"
    build(path, "--without-packages")
    return [sys.executable, str(path)]


def test_the_same_tree_gives_the_same_bytes(tmp_path, bare):
    expected = Path(bare[-1]).read_bytes()
    elsewhere = copy_sources(tmp_path / "other directory")
    settings = {"umask": 0o077, "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "1", "PYTHONHASHSEED": "7"}
    pythons = {sys.executable, *filter(os.path.exists, OTHER_PYTHONS)}
    for python in pythons:
        path = tmp_path / "again.pyz"
        assert build(path, "--without-packages", python=python, root=elsewhere, **settings) == expected, (
            python
        )
    names = zipfile.ZipFile(bare[-1]).namelist()
    assert names == sorted(names)  # directories of other file systems have other orders
    (elsewhere / "ompbind/text.py").write_text('"""Another text."""\n')
    assert build(tmp_path / "changed.pyz", "--without-packages", root=elsewhere) != expected


def test_dependencies_are_in_the_zipapp_in_a_version_that_ompbind_accepts():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least = dict(text.split(">=") for text in project["dependencies"])
    pinned = dict(re.findall(r"^(\w+)==([\d.]+) --hash=sha256:[0-9a-f]{64}$",
                             (PACKAGING / "zipapp.txt").read_text(), re.MULTILINE))  # fmt: skip
    assert pinned.keys() == least.keys() - {"psutil"}
    for name, version in pinned.items():
        assert numbers(version) >= numbers(least[name]), name


def numbers(version):
    return tuple(map(int, version.split(".")))


def test_the_first_module_has_the_syntax_of_old_pythons():
    text = (PACKAGING / "start_zipapp.py").read_text()
    ast.parse(text, feature_version=(3, 6))
    (needed,) = re.findall(r"^NEEDED = \((\d+), (\d+)\)$", text, re.MULTILINE)
    assert f'requires-python = ">={".".join(needed)}"' in (ROOT / "pyproject.toml").read_text()


PRETEND = """
import runpy, sys
del sys.argv[0]
sys.version_info = (3, 10, 4)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(("verb", "code"), [("run", 125), ("exec", 125), ("plan", 2), ("--version", 2)])
def test_a_python_that_is_too_old_is_an_error(bare, verb, code):
    python, path = bare
    done = subprocess.run([python, "-c", PRETEND, path, verb], capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stderr == (
        f"ompbind: error: {python} is Python 3.10, and 3.11 or later is needed\n"
        f"  hint: start it with a newer Python, for example: python3.11 {path}\n"
    )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The zipapp without the packages, with compiled modules, and the command line that runs it."""
    path = tmp_path_factory.mktemp("compiled") / "ompbind.pyz"
    build(path, "--without-packages", "--compiled")
    return [sys.executable, str(path)]


def test_compiled_modules_are_used_and_sources_stay_for_other_pythons(compiled):
    python, path = compiled
    names = set(zipfile.ZipFile(path).namelist())
    assert {f"{name}c" for name in names if name.endswith(".py")} <= names
    show = "import sys; sys.path.insert(0, sys.argv[1]); import ompbind.text as text; print(text.__cached__)"
    done = subprocess.run([python, "-c", show, path], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{path}/ompbind/text.pyc\n", done.stderr


@pytest.fixture(scope="module")
def zipapp():
    """The file that `make zipapp` has written."""
    path = os.environ.get("OMPTEST_ZIPAPP")
    if not path:
        pytest.skip("needs `make zipapp`, and OMPTEST_ZIPAPP with the path of the file")
    return Path(path).resolve()


@pytest.mark.part("packages")
def test_each_verb_works_without_other_packages(zipapp):
    """The same script checks the zipapp with other Pythons and in containers."""
    script = Path(__file__).with_name("check_zipapp.py")
    done = subprocess.run([sys.executable, script, zipapp], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.part("packages")
def test_packages_have_their_licenses_and_nothing_is_compiled(zipapp):
    names = zipfile.ZipFile(zipapp).namelist()
    tops = {name.partition("/")[0] for name in names}
    licensed = {name.partition("-")[0] for name in names if "/licenses/" in name}
    assert licensed == {"click", "rich", "tomlkit"} < tops
    assert "LICENSE" in tops
    assert not {name for name in names if name.endswith((".so", ".pyc", ".pyd"))}
    assert not tops & {"psutil", "pygments", "markdown_it"}


@pytest.mark.part("packages")
def test_the_whole_zipapp_is_the_same_when_it_is_built_again(zipapp, tmp_path):
    again = build(tmp_path / "again.pyz", root=copy_sources(tmp_path / "copy"), umask=0o077)
    assert again == zipapp.read_bytes()


@pytest.mark.part("packages")
def test_a_link_named_ompbind_is_the_command_and_is_completed(zipapp, tmp_path):
    (tmp_path / "ompbind").symlink_to(zipapp)
    line = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": "ompbind\ninsp", "COMP_CWORD": "1"}
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **line}
    done = subprocess.run(["sh", "-c", "ompbind"], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("plain,inspect"), done.stderr


@pytest.mark.part("packages")
def test_an_unpacked_zipapp_is_a_program_too(zipapp, tmp_path):
    zipfile.ZipFile(zipapp).extractall(tmp_path)
    command = [sys.executable, "-I", "-S", str(tmp_path), "plan", "--topology", "synthetic:core:2 pu:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "1 rank" in done.stdout, done.stderr
