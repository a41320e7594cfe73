"""What `make site` has built: all pages in their order, links that work, and nothing from other hosts."""

import os
import re
import subprocess
import sys
from shutil import copytree

import pytest

from tests.packaging.scripts import ROOT

pytestmark = pytest.mark.part("site")


SITE = ROOT / "site"  # what `make site` has built


def test_the_navigation_is_the_list_of_pages():
    listed = re.findall(r"^\| \[([^\]]+)\]\(", (ROOT / "docs/README.md").read_text(), re.M)
    links = r'<a href="([\w-]+\.html)" class="md-nav__link">.*?<span class="md-ellipsis">\s*(.*?)\s*<'
    shown = re.findall(links, (SITE / "index.html").read_text(), re.S)
    assert [title for _, title in shown] == listed
    built = {page.name for page in SITE.glob("*.html")}
    assert built == {page for page, _ in shown} | {"index.html", "404.html"}


def test_pages_have_what_the_theme_makes_of_them():
    loaded = r'<(?:script|link|img|iframe)[^>]+(?:src|href)="((?:https?:)?//[^"]+)"'
    assert not [found for page in SITE.rglob("*.html") for found in re.findall(loaded, page.read_text())]
    installation, reference, contributing = (
        (SITE / f"{name}.html").read_text() for name in ("installation", "reference", "contributing")
    )
    assert re.findall(r'<label for="[^"]+">(\w+)</label>', installation) == ["bash", "zsh", "fish"]
    assert "<code>-n, --ranks N|auto</code>" in reference
    assert not re.findall(r"<code[^>]*>[^<]*\\\|", reference)
    assert '__init__.py"' not in contributing


def test_wrong_links_and_pages_that_are_not_listed_are_errors(tmp_path):
    copytree(ROOT / "docs", tmp_path / "docs")
    for path in (ROOT / "mkdocs.yml", *ROOT.glob("*.md")):
        (tmp_path / path.name).write_text(path.read_text())
    with (tmp_path / "docs/doctor.md").open("a") as page:
        page.write("\n\n[a](nowhere.md)\n\n[a](running.md#nowhere)\n\n[a](#nothing)\n\n[a](/output.md)\n")
    (tmp_path / "docs/new.md").write_text("# New\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True, timeout=120)
    assert done.returncode == 1
    assert "new.md" in done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    for target in ("'nowhere.md'", "#nowhere'", "'#nothing'", "'/output.md'"):
        assert any("doctor.md" in line and target in line for line in warnings), (target, warnings)
