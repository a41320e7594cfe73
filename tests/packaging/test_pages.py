"""SECURITY.md names a test for each promise, and the forms for issues ask for commands that exist."""

import re

import pytest

from ompbind.cli.verbs import VERBS
from tests.packaging.scripts import ROOT

SECURITY = (ROOT / "SECURITY.md").read_text()


def test_every_promise_has_tests_that_exist():
    table = SECURITY.partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    assert not [row for row in rows if "::test_" not in row]
    missing = [
        f"{path}::{name}"
        for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", SECURITY)
        if not (ROOT / path).exists() or f"\ndef {name}(" not in (ROOT / path).read_text()
    ]
    assert missing == []


def test_forms_for_issues_are_valid():
    yaml = pytest.importorskip("yaml")
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github").glob("*/*.yml")}
    forms = {name: form for name, form in forms.items() if "body" in form}
    assert len(forms) >= 2
    for form in forms.values():
        assert {"name", "description", "body"} <= set(form)
        fields = [item for item in form["body"] if item["type"] != "markdown"]
        assert all(item["attributes"]["label"] for item in fields)
        assert len({item["id"] for item in fields}) == len(fields)
        verbs = set(
            re.findall(r"`ompbind ([a-z]+)", " ".join(item["attributes"]["label"] for item in fields))
        )
        assert verbs <= set(VERBS)
