"""`make release-check` finds what would make a release wrong, and CHANGELOG.md has the usual form."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from ompbind import __version__
from tests.live.conftest import required
from tests.packaging.scripts import ROOT, load_script

SECTIONS = load_script("packaging/release_check.py").read_sections((ROOT / "CHANGELOG.md").read_text())
RELEASED = f"## [{__version__}] - 2030-01-31"
CATEGORIES = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
FILES = (
    "packaging/release_check.py", "pyproject.toml", "CHANGELOG.md", "CITATION.cff", "README.md", ".gitignore",
    "docs/ompbind.1", "ompbind/py.typed", "ompbind/__init__.py", "tests/toys.py",
)  # fmt: skip


@pytest.fixture
def clone(tmp_path):
    """Return a repository with some files of this one, as they are now."""
    required("git")
    copy = tmp_path / "clone"
    for name in FILES:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    script = "git init -q; git add -A; git -c user.name=t -c user.email= commit -qm x"
    subprocess.run(["sh", "-c", script], cwd=copy, check=True, capture_output=True)
    return copy


def check(copy, *words):
    """Run the check of a copy; return its exit code and what it prints."""
    command = (sys.executable, copy / "packaging/release_check.py", *words)
    done = subprocess.run(command, cwd=copy, text=True, capture_output=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


ALL = ("--step", "version", "--step", "address", "--step", "tree")


@pytest.mark.parametrize(
    ("file", "pattern", "new", "words", "error"),
    [
        ("CITATION.cff", "^version: .*?$", "version: 7", (), "CITATION.cff does not contain 0"),
        ("docs/ompbind.1", '"ompbind .*?"', "x", (), "ompbind.1 does not contain 0"),
        ("CHANGELOG.md", r"^## \[Unre.*?$", RELEASED, (), "contain 2030-01-31"),
        ("CHANGELOG.md", r"(?<=\[Unreleased\]\n).*", "", (), "the section Unreleased .* is empty"),
        ("README.md", "^", "x", ("--release",), "CHANGELOG.md has no section"),
        ("pyproject.toml", "^repo.*?$", 'repository = ""', ("--release", *ALL[2:]), "no address"),
        ("README.md", "^", "x", ("--release", *ALL[4:]), "1 files are not committed, such as README.md"),
    ],
)
def test_what_is_wrong_is_an_error_with_a_hint(clone, file, pattern, new, words, error):
    assert check(clone, *ALL)[0] == 0
    text, count = re.subn(pattern, new, (clone / file).read_text(), count=1, flags=re.M | re.S)
    assert count == 1
    (clone / file).write_text(text)
    code, text = check(clone, *words, *(ALL if "--step" not in words else ()))
    assert code == 1
    assert re.search(f"release_check: error: .*{error}.*\n  hint: ", text)


@pytest.mark.parametrize(
    ("lacks", "has", "error"),
    [
        ((), (), ""),
        (("ompbind/py.typed",), (), "the wheel lacks ompbind/py.typed"),
        ((), ("ompbind/core.1234",), "the wheel contains ompbind/core.1234"),
        (("tests/toys.py",), (), "the sdist lacks tests/toys.py"),
    ],
)
def test_files_that_builds_lack_or_should_not_have(clone, lacks, has, error):
    files = set(FILES) - set(lacks) | set(has)
    (clone / "dist").mkdir()
    with zipfile.ZipFile(clone / "dist/ompbind-1-py3-none-any.whl", "w") as wheel:
        for name in files:
            if name.startswith("ompbind/"):
                wheel.writestr(name, "")
    with tarfile.open(clone / "dist/ompbind-1.tar.gz", "w:gz") as sdist:
        for name in (*files, "PKG-INFO"):
            sdist.addfile(tarfile.TarInfo(f"ompbind-1/{name}"))
    code, text = check(clone, "--step", "contents")
    assert (code, error in text) == (bool(error), True)


def test_the_changelog_has_the_usual_form():
    assert SECTIONS[0].version in ("Unreleased", __version__)
    dates = [section.date for section in SECTIONS if section.date]
    assert dates == sorted(dates, reverse=True)
    assert len({section.version for section in SECTIONS}) == len(SECTIONS) <= len(dates) + 1
    for section in SECTIONS:
        found = re.findall(r"^### (.+)$", section.text, re.M)
        assert found == [name for name in CATEGORIES if name in found] != []
        lines = [line for line in section.text.splitlines() if line]
        assert [line for line in lines if not line.startswith(("### ", "- ", "  "))] == []
