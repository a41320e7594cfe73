"""What a package index shows: the description with absolute links, and the addresses."""

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
README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\(([^)]+)\)")


@pytest.mark.parametrize(
    ("text", "linked", "plain"),
    [
        ("[`a`](a.md#b-c) d", f"[`a`]({REPOSITORY}/blob/v1.2.3/a.md#b-c) d", "`a` d"),
        ("[two\nlines](a)", f"[two\nlines]({REPOSITORY}/blob/v1.2.3/a)", "two\nlines"),
        ("![a](b.svg)", f"![a]({REPOSITORY}/raw/v1.2.3/b.svg)", ""),
        ("[a](https://b.example/c)", "[a](https://b.example/c)", "[a](https://b.example/c)"),
        ("```\n[a](b)\n```\n", "```\n[a](b)\n```\n", "```\n[a](b)\n```\n"),
    ],
)
def test_relative_links_get_the_address_or_become_text(text, linked, plain):
    assert index_metadata.make_links_absolute(text, TREE) == linked
    assert index_metadata.make_links_absolute(text, "") == plain


def test_all_links_of_the_readme_and_addresses_lead_to_files():
    links = LINK.findall(index_metadata.make_links_absolute(README, TREE))
    links += index_metadata.make_urls(REPOSITORY, TREE).values()
    paths = [found[1] for found in (re.match(r".*/v1\.2\.3/([^#]+)", link) for link in links) if found]
    assert len(paths) >= 20
    assert not [path for path in paths if not (ROOT / path).is_file()]
    assert not [link for link in links if not link.startswith("https:")]
    plain = LINK.findall(index_metadata.make_links_absolute(README, ""))
    assert not [link for link in plain if not link.startswith("https:")]


@pytest.mark.part("packages")
def test_builds_have_the_description_and_addresses():
    done = subprocess.run(
        (sys.executable, "-m", "hatchling", "metadata"), cwd=ROOT, text=True, capture_output=True, check=True
    )
    built = json.loads(done.stdout)
    hooks = load_script("packaging/release_check.py").read_hatch()["metadata"]["hooks"]
    repository = hooks["custom"]["repository"]
    tree = index_metadata.make_tree(repository, __version__)
    assert built["version"] == __version__
    assert built["readme"]["text"] == index_metadata.make_links_absolute(README, tree)
    assert built.get("urls", {}) == index_metadata.make_urls(repository, tree)


def test_the_picture_shows_the_plan_of_the_readme():
    assert generate.PICTURE.read_text() == generate.render_picture(), "run 'make docs'"
    assert generate.PICTURE.relative_to(ROOT).as_posix() in README
