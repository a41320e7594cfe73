"""Run a candidate once: start its ranks, wait until all have exited, and record everything about the run."""

import signal
import tempfile
import time

from ompbind.bench.conditions import find_system, make_conditions, read_counts
from ompbind.bench.metrics import read_values, render_last_lines
from ompbind.bench.records import Run, Status, Verification
from ompbind.bench.start_ranks import (
    CandidateStart,
    MeasuringSettings,
    SignalMask,
    Slot,
    delay_interrupts,
    start_ranks,
)
from ompbind.errors import OmpbindError
from ompbind.execution.outcome import Outcome, find_decisive, find_hint, render_exit_status
from ompbind.execution.readiness import check_commands
from ompbind.inspection.verdict import VerificationResult
from ompbind.procfs.reader import read_affinity
from ompbind.text import Severity


def run_candidate(start: CandidateStart, settings: MeasuringSettings, slot: Slot, *, verify: bool) -> Run:
    """Run a candidate once, and return what was measured; with `verify`, its threads are checked too.

    A run that fails is no error: its status says so. Raises KeyboardInterrupt if a signal stops the run,
    after all ranks have exited.
    """
    system, started = find_system(), time.time()
    before = read_counts(system, settings.run_id)
    with (
        delay_interrupts() as signal_mask,  # while the directory is made, and while it is removed
        tempfile.TemporaryDirectory(prefix="ompbind-bench-", ignore_cleanup_errors=True) as directory,
        SignalMask(signal.SIG_SETMASK, signal_mask),
    ):
        outcome, values = _measure(start, settings, directory, verify=verify)
    after = read_counts(system, settings.run_id)
    cpus = start.plan.used if start.plan else read_affinity(0)
    run = Run(
        candidate=start.candidate.name,
        number=slot.number,
        round=slot.round,
        started=started,
        values=values,
        conditions=make_conditions(before, after, cpus),
    )
    return add_outcome(run, outcome, settings.timeout_s)


def _measure(
    start: CandidateStart, settings: MeasuringSettings, directory: str, *, verify: bool
) -> tuple[Outcome, tuple[float, ...]]:
    """Run the ranks; return how they exited, and the value of each metric, () if they have failed."""
    outcome = Outcome(exits=())
    try:
        check_commands(start.commands)
        with start_ranks(start, settings, directory, verify=verify) as ranks:
            outcome = ranks.wait()
        if outcome.stop_requested and not outcome.timed_out:
            raise KeyboardInterrupt  # the signal has reached the run, but not yet this process
        if find_failure(outcome, settings.timeout_s):
            return outcome, ()
        if not settings.metrics[0].pattern:  # the wall time
            return outcome, (max(rank_exit.usage.wall_s for rank_exit in find_decisive(outcome)),)
        return outcome, read_values(settings.metrics, directory, start.log_names)
    except OmpbindError as error:
        return outcome.replace(error=error), ()


def add_outcome(run: Run, outcome: Outcome, timeout_s: float | None) -> Run:
    """Add to the record of a run what its ranks used, how they exited, and whether the run counts."""
    exits = sorted(outcome.exits, key=lambda rank_exit: rank_exit.rank)
    usages = [rank_exit.usage for rank_exit in exits]
    peaks = [usage.max_rss_bytes for usage in usages if usage.max_rss_bytes is not None]
    verification, violation = find_verification(outcome.verified)
    failure = find_failure(outcome, timeout_s)
    return run.replace(
        wall_s=tuple(usage.wall_s for usage in usages),
        user_s=sum((usage.user_s for usage in usages), 0.0),
        system_s=sum((usage.system_s for usage in usages), 0.0),
        max_rss_bytes=sum(peaks) if usages and len(peaks) == len(usages) else None,
        forced_switches=sum(usage.involuntary_switches for usage in usages),
        exit_codes=tuple(0 if rank_exit.stopped and not failure else rank_exit.status for rank_exit in exits),
        verification=verification,
        status=Status.FAILED if failure else Status.INVALID if violation else Status.OK,
        reason=failure or violation,
    )


def find_failure(outcome: Outcome, timeout_s: float | None) -> str:
    """Return why a run has failed, with the last words of the first rank that failed; "" if it has not."""
    failed = next((rank_exit for rank_exit in outcome.exits if rank_exit.failed), None)
    if outcome.error:
        return outcome.error.message
    if outcome.timed_out:
        return f"timeout after {timeout_s:g} s"
    if failed is None:
        return ""
    exited = f"rank {failed.rank} {render_exit_status(failed)}"
    return "; ".join(filter(None, (exited, render_last_lines(failed.last_lines), find_hint(failed, outcome))))


def find_verification(verified: VerificationResult | None) -> tuple[Verification, str]:
    """Return the result of the verification of a run, and its first error, "" for none."""
    if verified is None:
        return Verification.NOT_CHECKED, ""
    for checked in verified.ranks:
        for issue in checked.verdict.issues if checked.verdict else ():
            if issue.severity is Severity.ERROR:
                return Verification.VIOLATED, f"rank {checked.rank}: {issue.text}"
    is_seen = all(checked.verdict for checked in verified.ranks)
    return Verification.VERIFIED if is_seen else Verification.UNSEEN, ""
