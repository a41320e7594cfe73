"""Pairs of OpenMP runtimes that do not work in one process, found among the runtimes that it loads."""

from collections.abc import Callable, Collection
from itertools import combinations

from ompbind.openmp.runtimes import OmpRuntime


def find_aborting_pair(
    loaded: Collection[OmpRuntime | None],
) -> tuple[OmpRuntime, OmpRuntime, str] | None:
    """Return the first two of the loaded runtimes that abort a process with both, and their message."""
    pair = _find_pair(loaded, lambda runtime: runtime.facts.aborts_with)
    return (*pair, pair[0].facts.abort_message or pair[1].facts.abort_message) if pair else None


def find_intercepting_pair(loaded: Collection[OmpRuntime | None]) -> tuple[OmpRuntime, OmpRuntime] | None:
    """Return the first two of the preloaded runtimes where one intercepts calls to the other."""
    return _find_pair(loaded, lambda runtime: runtime.facts.not_preloaded_with)


def _find_pair(
    loaded: Collection[OmpRuntime | None], find_rivals: Callable[[OmpRuntime], tuple[str, ...]]
) -> tuple[OmpRuntime, OmpRuntime] | None:
    """Return the first two loaded runtimes, in the order of rows, where one names the other as a rival."""
    pairs = combinations((runtime for runtime in OmpRuntime if runtime in loaded), 2)
    return next(
        (
            (first, second)
            for first, second in pairs
            if first in find_rivals(second) or second in find_rivals(first)
        ),
        None,
    )
