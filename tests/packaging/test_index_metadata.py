"""What a package index and the host of the repository show: links, the picture, promises, and forms."""

import json
import re
import subprocess
import sys

import pytest

from ompbind import __version__
from tests.packaging.scripts import ROOT, load_script

index_metadata = load_script("packaging/index_metadata.py")
generate = load_script("docs/generate.py")

REPOSITORY = "https://host.example/ompbind"
TREE = index_metadata.make_tree(REPOSITORY, "1.2.3")
README, SECURITY = ((ROOT / name).read_text() for name in ("README.md", "SECURITY.md"))


@pytest.mark.parametrize(("text", "linked", "plain"), [
    ("[`a`](a.md#b-c) d", f"[`a`]({REPOSITORY}/blob/v1.2.3/a.md#b-c) d", "`a` d"),
    ("![a](b.svg)", f"![a]({REPOSITORY}/raw/v1.2.3/b.svg)", ""),
    ("[a](https://b.example/c)", "[a](https://b.example/c)", "[a](https://b.example/c)"),
    ("```\n[a](b)\n```\n", "```\n[a](b)\n```\n", "```\n[a](b)\n```\n"),
])  # fmt: skip
def test_relative_links_get_the_address_or_become_text(text, linked, plain):
    assert index_metadata.make_links_absolute(text, TREE) == linked
    assert index_metadata.make_links_absolute(text, "") == plain


def test_all_links_of_the_readme_and_addresses_lead_to_files():
    links = re.findall(r"\]\(([^)]+)\)", index_metadata.make_links_absolute(README, TREE))
    links += index_metadata.make_urls(REPOSITORY, TREE).values()
    paths = [found[1] for found in (re.match(r".*/v1\.2\.3/([^#]+)", link) for link in links) if found]
    assert len(paths) >= 20
    assert not [path for path in paths if not (ROOT / path).is_file()]
    assert not [link for link in links if not link.startswith("https:")]


@pytest.mark.part("packages")
def test_builds_have_the_description_and_addresses():
    words = (sys.executable, "-m", "hatchling", "metadata")
    built = json.loads(subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout)
    hatch = load_script("packaging/release_check.py").read_hatch()
    repository = hatch["metadata"]["hooks"]["custom"]["repository"]
    tree = index_metadata.make_tree(repository, __version__)
    assert built["readme"]["text"] == index_metadata.make_links_absolute(README, tree)
    assert built.get("urls", {}) == index_metadata.make_urls(repository, tree)


def test_the_picture_shows_the_plan_of_the_readme():
    assert generate.PICTURE.read_text() == generate.render_picture(), "run 'make docs'"
    assert generate.PICTURE.relative_to(ROOT).as_posix() in README


def test_every_promise_of_security_has_tests_that_exist():
    table = SECURITY.partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    assert not [row for row in rows if "::test_" not in row]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", SECURITY)
    texts = {path: (ROOT / path).read_text() if (ROOT / path).exists() else "" for path, _ in named}
    assert [f"{path}::{name}" for path, name in named if f"\ndef {name}(" not in texts[path]] == []
