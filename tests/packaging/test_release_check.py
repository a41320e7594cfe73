"""`make release-check` finds what would make a release wrong, and CHANGELOG.md has the usual form."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from itertools import pairwise

import pytest

from ompbind import __version__
from tests.live.conftest import required
from tests.packaging.scripts import ROOT, load_script

release_check = load_script("packaging/release_check.py")
SECTIONS = release_check.read_sections((ROOT / "CHANGELOG.md").read_text())
RELEASED = f"## [{__version__}] - 2030-01-31"
CATEGORIES = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def git(directory, *words):
    return subprocess.run(("git", *words), cwd=directory, text=True, capture_output=True, check=True).stdout


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
    git(copy, "init", "--quiet")
    git(copy, "add", "--all")
    commit(copy)
    return copy


def commit(copy):
    git(copy, "-c", "user.name=test", "-c", "user.email=", "commit", "--quiet", "--all", "--message", "x")


def check(copy, *words):
    """Run the check of a copy; return its exit code and what it prints."""
    script = (sys.executable, copy / "packaging/release_check.py")
    done = subprocess.run(
        (*script, *words), cwd=copy, text=True, capture_output=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def replace(path, pattern, new):
    text, count = re.subn(pattern, new, path.read_text(), count=1, flags=re.M | re.S)
    assert count == 1
    path.write_text(text)


def test_a_rehearsal_shows_what_a_release_needs(clone):
    code, text = check(clone, "--step", "version", "--step", "address", "--step", "tree")
    assert (code, text.count("\n")) == (0, 3)
    assert f"a release needs more: CHANGELOG.md has no section '## [{__version__}] - YYYY-MM-DD'" in text
    assert text.endswith(" s  clean\n")


def test_a_release_that_is_ready(clone):
    replace(clone / "CHANGELOG.md", r"^## \[Unre.*?$", RELEASED)
    replace(clone / "CITATION.cff", r"\Z", "date-released: 2030-01-31\n")
    replace(clone / "docs/ompbind.1", r"^(\.TH OMPBIND 1 )\S+", r"\1 2030-01-31")
    replace(clone / "pyproject.toml", '^repository = "[^"]*"', 'repository = "https://host.example/ompbind"')
    commit(clone)
    code, text = check(clone, "--release", "--step", "version", "--step", "address", "--step", "tree")
    assert code == 0
    assert f"{__version__} of 2030-01-31\n" in text
    assert "https://host.example/ompbind\n" in text


@pytest.mark.parametrize(
    ("step", "file", "pattern", "new", "words", "error"),
    [
        ("version", "CITATION.cff", "^version: .*?$", "version: 7", (), "CITATION.cff does not contain 0"),
        ("version", "docs/ompbind.1", '"ompbind .*?"', "x", (), "ompbind.1 does not contain 0"),
        ("version", "CHANGELOG.md", r"^## \[Unre.*?$", RELEASED, (), "contain 2030-01-31"),
        ("version", "CHANGELOG.md", r"(?<=\[Unreleased\]\n).*", "", (), "the section Unreleased .* is empty"),
        ("version", "README.md", "^", "x", ("--release",), "CHANGELOG.md has no section"),
        ("address", "pyproject.toml", "^repo.*?$", 'repository = ""', ("--release",), "no address"),
        ("address", "pyproject.toml", "^repo.*?$", 'repository = "https://a/"', ("--release",), "no address"),
        ("tree", "README.md", "^", "x", ("--release",), "1 files are not committed, such as README.md"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_an_error_with_a_hint(clone, step, file, pattern, new, words, error):
    replace(clone / file, pattern, new)
    code, text = check(clone, *words, "--step", step)
    assert code == 1
    assert re.search(f"release_check: error: .*{error}.*\n  hint: ", text)


@pytest.mark.parametrize(
    ("lacks", "has", "error"),
    [
        ((), (), ""),
        (("ompbind/py.typed",), (), "the wheel lacks ompbind/py.typed"),
        ((), ("ompbind/core.1234",), "the wheel contains ompbind/core.1234"),
        (("tests/toys.py",), (), "the sdist lacks tests/toys.py"),
        ((), ("docs/notes.txt",), "the sdist contains docs/notes.txt"),
    ],
)
def test_files_that_builds_lack_or_should_not_have(clone, lacks, has, error):
    make_builds(clone / "dist", set(FILES) - set(lacks) | set(has))
    code, text = check(clone, "--step", "contents")
    assert code == bool(error)
    assert error in text


def make_builds(directory, files):
    """Write an empty file for each path into a wheel and an sdist."""
    directory.mkdir()
    with zipfile.ZipFile(directory / "ompbind-1-py3-none-any.whl", "w") as wheel:
        for name in (
            *(name for name in files if name.startswith("ompbind/")),
            "ompbind-1.dist-info/METADATA",
        ):
            wheel.writestr(name, "")
    with tarfile.open(directory / "ompbind-1.tar.gz", "w:gz") as sdist:
        for name in (*files, "PKG-INFO"):
            sdist.addfile(tarfile.TarInfo(f"ompbind-1/{name}"))


def test_the_newest_section_is_of_this_version_or_of_the_next():
    assert SECTIONS[0].version in ("Unreleased", __version__)
    assert (SECTIONS[0].version == "Unreleased") == (not SECTIONS[0].date)


def test_older_sections_have_a_date_and_follow_in_order():
    assert all(section.date for section in SECTIONS[1:])
    dates = [section.date for section in SECTIONS if section.date]
    assert all(newer >= older for newer, older in pairwise(dates))
    assert len({section.version for section in SECTIONS}) == len(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.version)
def test_categories_have_the_standard_names_in_the_standard_order(section):
    found = re.findall(r"^### (.+)$", section.text, re.M)
    assert found
    assert found == [name for name in CATEGORIES if name in found]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.version)
def test_a_section_has_only_categories_and_their_entries(section):
    lines = [line for line in section.text.splitlines() if line]
    assert [line for line in lines if not line.startswith(("### ", "- ", "  "))] == []


def test_all_headings_of_the_changelog_are_sections_or_categories():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert len(re.findall(r"^#{1,2} ", text, re.M)) == len(SECTIONS) + 1
    assert "keepachangelog.com/en/1.1.0" in text


def test_the_citation_has_the_version():
    generate = load_script("docs/generate.py")
    citation, changelog = generate.CITATION.read_text(), generate.CHANGELOG.read_text()
    assert generate.render_citation(citation, changelog) == citation, "run 'make docs'"
    assert f"\nversion: {__version__}\n" in citation


def test_the_citation_has_the_day_of_the_release():
    render = load_script("docs/generate.py").render_citation
    text, version = "a\nversion: 0\nb\n", f"a\nversion: {__version__}\n"
    assert render(text, "## [Unreleased]\n") == f"{version}b\n"
    released = render(text, f"## [{__version__}] - 2030-01-31\n")
    assert released == f"{version}date-released: 2030-01-31\nb\n"
    assert (
        render(released, f"## [{__version__}] - 2030-02-01\n") == f"{version}date-released: 2030-02-01\nb\n"
    )
