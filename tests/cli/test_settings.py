"""The fields of a record of settings are the options of each verb that makes the record."""

import pytest

from ompbind.cli.options import find_options
from ompbind.cli.settings import BenchSettings, ExecSettings, PlanningSettings, PlanSettings, RunSettings
from ompbind.execution.run_options import Supervision

RECORDS = {"run": RunSettings, "exec": ExecSettings, "plan": PlanSettings, "bench": BenchSettings}
NO_OPTIONS = {"words", "sources", "configuration", "planning", "parse_again", "supervision"}
NO_FIELDS = {"preset", "config"}
"""Options that are used before there are settings: they choose where values come from."""

OF_SOME_VERBS = {"plan", "wait", "fill", "chdir", "wrap", "wrap_ranks", "quiet", "verbose"}
"""Planning settings that have a default, because not all verbs have the option."""


@pytest.mark.parametrize("verb", RECORDS)
def test_fields_are_the_options_of_a_verb(verb):
    options = {option.name for option in find_options(verb)}
    fields = {*PlanningSettings.fields, *RECORDS[verb].fields} - NO_OPTIONS
    fields |= set(Supervision.fields) if verb == "run" else set()
    assert fields - OF_SOME_VERBS <= options
    assert options - NO_FIELDS <= fields


def test_a_setting_with_a_default_is_an_option_of_some_verb():
    assert set(PlanningSettings.defaults) == OF_SOME_VERBS
    assert {option.name for verb in RECORDS for option in find_options(verb)} >= OF_SOME_VERBS
