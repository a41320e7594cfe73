"""Settings of the whole test suite."""

from hypothesis import settings

# Examples are counted, not timed: a slow machine is no fault of what is tested.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
