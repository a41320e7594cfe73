"""`make site`: all pages in their order, links that work, and nothing from other hosts."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = ("docs", "mkdocs.yml", *(path.name for path in ROOT.glob("*.md")))
"""What the site is made of."""


pytestmark = pytest.mark.part("site")


@pytest.fixture(scope="module")
def mkdocs():
    if find_spec("mkdocs") is None:
        assert not os.environ.get("OMPTEST_ALL"), "CI must run make site first"
        pytest.skip("mkdocs is not installed: run 'make site'")


def build(directory, docs=ROOT):
    """Build the site into a directory."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(directory)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=docs, env=env, text=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def site(mkdocs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    done = build(directory)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture
def copied(mkdocs, tmp_path):
    """Return a copy of the sources, to break."""
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            copytree(source, tmp_path / name)
        else:
            (tmp_path / name).write_text(source.read_text())
    return tmp_path


def test_the_navigation_is_the_list_of_pages(site):
    listed = re.findall(r"^\| \[([^\]]+)\]\(", (ROOT / "docs/README.md").read_text(), re.M)
    links = r'<a href="(\w+\.html)" class="md-nav__link">.*?<span class="md-ellipsis">\s*(.*?)\s*<'
    shown = re.findall(links, (site / "index.html").read_text(), re.S)
    assert [title for _, title in shown] == listed
    built = {page.name for page in site.glob("*.html")}
    assert built == {page for page, _ in shown} | {"index.html", "404.html"}


def test_nothing_comes_from_other_hosts(site):
    loaded = r'<(?:script|link|img|iframe)[^>]+(?:src|href)="((?:https?:)?//[^"]+)"'
    assert not [found for page in site.rglob("*.html") for found in re.findall(loaded, page.read_text())]
    assert "@import" not in (site / "site/extra.css").read_text()


def test_shells_are_tabs_and_options_in_tables_have_no_backslash(site):
    tutorial, reference = ((site / f"{name}.html").read_text() for name in ("tutorial", "reference"))
    assert re.findall(r'<label for="[^"]+">(\w+)</label>', tutorial) == ["bash", "zsh", "fish"]
    assert '<div class="tabbed-set' not in (site / "recipes.html").read_text()
    assert "<code>-n, --ranks N|auto</code>" in reference
    assert not re.findall(r"<code[^>]*>[^<]*\\\|", reference)


def test_code_and_pages_outside_of_docs_are_linked(site):
    assert (
        'href="placement.html#gpus-and-network-interfaces---devices"' in (site / "changes.html").read_text()
    )
    contributing = (site / "contributing.html").read_text()
    assert "execution/output" in contributing
    assert '__init__.py"' not in contributing


WRONG = ("[a](nowhere.md)", "[a](running.md#nowhere)", "[a](#nothing)", "[a](/output.md)")


def test_wrong_links_and_pages_that_are_not_listed_are_errors(copied, tmp_path):
    with (copied / "docs/doctor.md").open("a") as page:
        page.write("\n\n".join(("", *WRONG, "")))
    (copied / "docs/new.md").write_text("# New\n")
    done = build(tmp_path / "site", copied)
    assert done.returncode == 1
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    for target in ("'nowhere.md'", "#nowhere'", "'#nothing'", "'/output.md'"):
        assert any("doctor.md" in line and target in line for line in warnings), (target, warnings)
    assert any("nav" in line for line in warnings)
    assert "new.md" in done.stderr
