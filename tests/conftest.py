"""Settings of the whole test suite."""

import os

from hypothesis import settings

# Examples are counted, not timed: a slow machine is no fault of what is tested.
settings.register_profile(
    "untimed", deadline=None, max_examples=int(os.environ.get("OMPBIND_EXAMPLES", "100"))
)
settings.load_profile("untimed")
