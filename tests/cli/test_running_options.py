"""Values of the options of `run`."""

import pytest

from ompbind.cli.options import find_options
from ompbind.errors import OptionError
from ompbind.execution.restarts import RestartPolicy

(ON_FAILURE,) = (option for option in find_options("run") if option.name == "on_failure")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("stop", "stop"),
        ("continue", "continue"),
        ("restart", RestartPolicy()),
        ("restart:1", RestartPolicy(limit=1)),
        ("restart:250", RestartPolicy(limit=250)),
    ],
)
def test_actions_on_failure(text, value):
    assert ON_FAILURE.read(text) == value


@pytest.mark.parametrize(
    "text", ["", "restart:", "restart:0", "restart:-1", "restart:N", "restarts", "stop:1"]
)
def test_wrong_actions_on_failure(text):
    with pytest.raises(OptionError) as caught:
        ON_FAILURE.read(text)
    assert ("restart:N" in caught.value.hint) == text.startswith("restart:")
