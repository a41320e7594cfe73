"""How many cases tests try: a sample (`make test`), or all (the part `long` of `make test-all`)."""

import os
from typing import Any

from hypothesis import settings

LONG = bool(os.environ.get("OMPTEST_LONG"))
"""Whether all cases are tried."""

EXAMPLES = int(os.environ.get("OMPTEST_EXAMPLES") or (1000 if LONG else 30))
"""Examples of each property test."""

IS_RANDOM = LONG or "OMPTEST_EXAMPLES" in os.environ
"""Whether each run tries other examples. `make test` always tries the same: it does not fail by chance."""

FUZZED = 100_000 if LONG else 600
"""Random inputs of tests that look for errors without an explanation."""

ROUNDS = float(os.environ.get("OMPTEST_FAULT_ROUNDS") or (10 if LONG else 0.25))
"""Factor for the repetitions of tests that depend on random moments."""


def examples(times: float, **others: Any) -> settings:
    """Return the settings of a property test with `times` EXAMPLES."""
    return settings(max_examples=max(1, round(EXAMPLES * times)), **others)


def rounds(times: int) -> int:
    """Return the number of repetitions, `times` if ROUNDS is 1."""
    return max(1, round(times * ROUNDS))
