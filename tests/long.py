"""How much tests try: what `make test` has time for, or all there is (`make test-long`)."""

import os
from typing import Any

from hypothesis import settings

LONG = bool(os.environ.get("OMPBIND_TEST_LONG"))
"""Whether nothing is thinned."""

EXAMPLES = int(os.environ.get("OMPBIND_EXAMPLES") or (1000 if LONG else 100))
"""How many examples a property is tried with."""

ROUNDS = float(os.environ.get("OMPBIND_FAULT_ROUNDS") or (10 if LONG else 0.4))
"""How often everything is repeated that hits upon moments by chance, beside what its test says."""

WHOLE_MATRIX = LONG or os.environ.get("OMPBIND_TEST_MATRIX") == "all"
"""Whether every OpenMP runtime meets every mode and every other runtime."""


def examples(times: float, **others: Any) -> settings:
    """Make the settings of a property that needs more or fewer examples than others."""
    return settings(max_examples=max(1, round(EXAMPLES * times)), **others)


def rounds(times: int) -> int:
    """Count how often to repeat something that is repeated so many times where ROUNDS is 1."""
    return max(1, round(times * ROUNDS))
