"""Settings of the whole test suite."""

import os

import pytest
from hypothesis import settings

# Examples are counted, not timed: a slow machine is no fault of what is tested.
settings.register_profile(
    "untimed", deadline=None, max_examples=int(os.environ.get("OMPBIND_EXAMPLES", "100"))
)
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def _claims_of_its_own(tmp_path_factory):
    """Keep live runs of this session and of the rest of the machine out of each other's sight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMPBIND_RUNTIME_DIR", os.fspath(tmp_path_factory.mktemp("claims")))
        yield
