"""SECURITY.md names tests that exist, and the forms for issues are valid."""

import os
import re

import pytest

from tests.packaging.scripts import ROOT

PROMISES = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text())
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize(("path", "name"), PROMISES, ids=lambda value: value)
def test_the_test_of_a_promise_exists(path, name):
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.M)


def test_every_promise_has_a_test():
    table = (ROOT / "SECURITY.md").read_text().partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    assert not [row for row in rows if "::test_" not in row]


def read_form(path):
    """Return a form for issues. CI installs the package for YAML."""
    if not os.environ.get("OMPTEST_ALL"):
        pytest.importorskip("yaml")
    import yaml

    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize(
    "path", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.stem
)
def test_forms_have_what_the_host_requires(path):
    form = read_form(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [item for item in form["body"] if item["type"] != "markdown"]
    assert len({item["id"] for item in fields}) == len(fields) >= 2
    assert all(item["attributes"]["label"] for item in fields)
    assert {item["type"] for item in form["body"]} <= {
        "markdown",
        "textarea",
        "input",
        "dropdown",
        "checkboxes",
    }
    assert any(item.get("validations", {}).get("required") for item in fields)


def test_the_form_for_bugs_asks_for_commands_that_exist():
    labels = [item["attributes"].get("label", "") for item in read_form(FORMS[0])["body"]]
    verbs = [match[1] for label in labels for match in re.finditer(r"`ompbind ([\w-]+)", label)]
    assert set(verbs) == {"--version", "plan", "topo", "doctor"}
