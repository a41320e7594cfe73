"""What a package index shows: the description with absolute links, the addresses, and the picture."""

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
        ("[a](docs/a.md)", f"[a]({REPOSITORY}/blob/v1.2.3/docs/a.md)", "a"),
        ("[`a`](a.md#b-c) d", f"[`a`]({REPOSITORY}/blob/v1.2.3/a.md#b-c) d", "`a` d"),
        ("[a [b] c](d)", f"[a [b] c]({REPOSITORY}/blob/v1.2.3/d)", "a [b] c"),
        ("[two\nlines](a)", f"[two\nlines]({REPOSITORY}/blob/v1.2.3/a)", "two\nlines"),
        ("![a](b.svg)", f"![a]({REPOSITORY}/raw/v1.2.3/b.svg)", ""),
        ("[a](https://b.example/c)", "[a](https://b.example/c)", "[a](https://b.example/c)"),
        ("```\n[a](b)\n```\n", "```\n[a](b)\n```\n", "```\n[a](b)\n```\n"),
    ],
)
def test_relative_links_get_the_address_or_become_text(text, linked, plain):
    assert index_metadata.make_links_absolute(text, TREE) == linked
    assert index_metadata.make_links_absolute(text, "") == plain


def test_all_links_of_the_readme_are_absolute_and_lead_to_files():
    targets = LINK.findall(index_metadata.make_links_absolute(README, TREE))
    others = [target for target in LINK.findall(README) if target.startswith("https:")]
    assert len(targets) >= 20 + len(others)
    for target in set(targets) - set(others):
        found = re.fullmatch(rf"{REPOSITORY}/(blob|raw)/v1\.2\.3/([^#]+)(#.*)?", target)
        assert found, target
        assert (ROOT / found[2]).is_file(), target
        assert (found[1] == "raw") == target.endswith(".svg")


def test_without_an_address_the_description_has_no_relative_links():
    links = LINK.findall(index_metadata.make_links_absolute(README, ""))
    assert links == [target for target in LINK.findall(README) if target.startswith("https:")]
    assert index_metadata.make_urls("", "") == {}


def test_builds_have_the_description_and_addresses():
    done = subprocess.run(
        (sys.executable, "-m", "hatchling", "metadata"), cwd=ROOT, text=True, capture_output=True, check=True
    )
    built = json.loads(done.stdout)
    repository = load_script("packaging/release_check.py").read_hatch()["metadata"]["hooks"]["custom"][
        "repository"
    ]
    tree = index_metadata.make_tree(repository, __version__)
    assert built["version"] == __version__
    assert built["readme"]["text"] == index_metadata.make_links_absolute(README, tree)
    assert built.get("urls", {}) == index_metadata.make_urls(repository, tree)


def test_addresses_lead_to_files():
    urls = index_metadata.make_urls(REPOSITORY, TREE)
    paths = [url.partition("/v1.2.3/")[2] for url in urls.values() if "/v1.2.3/" in url]
    assert len(paths) == 3
    assert not [path for path in paths if not (ROOT / path).is_file()]


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


def test_the_picture_shows_the_plan_of_the_readme():
    assert generate.PICTURE.read_text() == generate.render_picture(), "run 'make docs'"
    assert generate.PICTURE.relative_to(ROOT).as_posix() in README
    assert generate.PICTURE_COMMAND.removesuffix(" --format svg") in README
