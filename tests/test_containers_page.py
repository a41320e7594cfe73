"""The examples of docs/containers.md agree with packaging/Dockerfile, and give ompbind time to stop ranks."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/containers.md").read_text()
DOCKERFILE = (ROOT / "packaging/Dockerfile").read_text()
ENTRY_POINT = re.compile(r"^ENTRYPOINT (.*)", re.M)


def test_entry_points_are_the_same_and_have_no_shell():
    (image,) = ENTRY_POINT.findall(DOCKERFILE)
    assert json.loads(image) == ["ompbind", "run", "--"]
    assert ENTRY_POINT.findall(PAGE) == [image]


def test_the_page_says_which_grace_the_image_has():
    (grace,) = re.findall(r"^ENV OMPBIND_GRACE=(\d+)", DOCKERFILE, re.M)
    assert f"sets\n`OMPBIND_GRACE={grace}`" in PAGE
    assert int(grace) < 10, "docker stop kills after 10 seconds"


@pytest.mark.parametrize(
    "pattern",
    [
        r"--stop-timeout (?P<stop>\d+) --env OMPBIND_GRACE=(?P<grace>\d+)",
        r'stop_grace_period: (?P<stop>\d+)s(?s:.*)OMPBIND_GRACE: "(?P<grace>\d+)"',
    ],
)
def test_containers_are_killed_after_the_grace(pattern):
    found = re.search(pattern, PAGE)
    assert int(found["grace"]) < int(found["stop"])
