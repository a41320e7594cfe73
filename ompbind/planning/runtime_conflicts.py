"""Refuse OpenMP runtimes that do not work in one process."""

from collections.abc import Sequence

from ompbind.errors import PlanError
from ompbind.openmp.runtimes import find_aborting_pair, find_intercepting_pair
from ompbind.planning.runtime_choice import explain_detection
from ompbind.programs.workload import DetectedLibrary, DetectionMethod


def check_runtimes(certain: Sequence[DetectedLibrary]) -> None:
    """Raise PlanError if runtimes that a rank will certainly load do not work in one process."""
    preloaded = [
        detected.library.kind for detected in certain if detected.method is DetectionMethod.PRELOADED
    ]
    if find_intercepting_pair({kind.family for kind in preloaded}):
        names = " and ".join(dict.fromkeys(kind.label for kind in preloaded))
        raise PlanError(
            f"{names} are preloaded together: one intercepts calls to the other, and both bind threads",
            hint="preload only one OpenMP runtime",
        )
    if pair := find_aborting_pair({detected.library.family for detected in certain}):
        first, second, message = pair
        sources = ", ".join(
            f"{detected.library.kind.label} ({explain_detection(detected)})" for detected in certain
        )
        raise PlanError(
            f"a process that loads {first.label} and {second.label} aborts ({message}): {sources}",
            hint="preload neither, or only the runtime that the program needs",
        )
