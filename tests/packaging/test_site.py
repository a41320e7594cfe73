"""What `make site` has built: all pages in their order, and nothing from other hosts."""

import re

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
    assert (SITE / "schemas/plan.schema.json").is_file()
