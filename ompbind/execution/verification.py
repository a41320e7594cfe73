"""What samples of threads mean for a run: reports, and with --verify=strict an error that stops it.

threads outside their rank's CPUs   as soon as two samples in a row show it
everything else                     when the start is complete: before, threads are only partly bound
later                               when an error has come or gone, or a note is new, in two samples in a row
at the end, however a run exits     for how long the run was verified, and all errors that were reported; if
                                    the start was not complete, also the errors of the last sample; long waits
                                    of threads in a short run
"""

import signal
import time
from collections.abc import Collection

from ompbind.execution.outcome import render_exit_status
from ompbind.execution.ranks import Run
from ompbind.execution.sampler import AffinitySampler
from ompbind.inspection.findings import select_issues
from ompbind.inspection.verdict import NO_RANK, State, VerificationResult
from ompbind.text import Severity


def sample_affinities(run: Run) -> None:
    """Sample the threads of all ranks and report what has changed; do nothing if the run is being stopped.

    With `strict` the run is stopped unless the state is OK.
    """
    sampler = run.sampler
    assert sampler
    if run.shutdown.begun or not run.live:
        sampler.sample_at = sampler.due_at = None
        return
    now, cpu_began_s = time.monotonic(), time.process_time()
    if not sampler.is_sample_due(now):
        return
    _judge_ended(run, sampler)
    at_once = () if sampler.complete else sampler.ranks
    sampler.sample({pid: child.rank for pid, child in run.live.items()}, now)
    verified = _evaluate(run, sampler, at_once)
    streaks = (streak for seen in sampler.ranks.values() for streak in (seen.streak, seen.shared))
    in_doubt = any(streak.samples and not streak.is_proof for streak in streaks)
    cpu_s = time.process_time() - cpu_began_s  # without the report: it is written only if something changes
    sampler.schedule_next(now, cpu_s, unconfirmed=in_doubt or bool(sampler.findings.unconfirmed))
    if verified:
        _report(run, sampler, verified)
    is_wrong = sampler.findings.errors or (verified and verified.state is not State.OK)
    if run.options.strict and is_wrong:
        run.reap_children()  # a rank that has just failed was not stopped
        if run.live and not run.shutdown.begun:
            sampler.stopped = True
            run.stop(signal.SIGTERM)


def _evaluate(run: Run, sampler: AffinitySampler, at_once: Collection[int]) -> VerificationResult | None:
    """Return the confirmed issues of the last sample, all of the ranks `at_once`; None if too early.

    Before the start is complete, only threads outside the CPUs of their rank count: all else may change.
    """
    escaped = {rank for rank, seen in sampler.ranks.items() if seen.escaped}
    if not (sampler.complete or escaped):
        return None
    verified = _make_verified(run, sampler)
    if sampler.complete:
        verified = sampler.findings.confirm(verified, at_once=at_once)
    else:
        verified = select_issues(verified, lambda rank, issue: rank in escaped and issue.code == "outside")
    sampler.verified = verified
    return verified if sampler.complete or verified.errors else None


def _judge_ended(run: Run, sampler: AffinitySampler) -> None:
    """Report errors of attempts that have exited, as at the end of a run, and forget their samples."""
    ended, sampler.ended = sampler.ended, []
    ranks = {rank for rank, was_complete in ended if not was_complete}
    if ranks:
        verified = select_issues(_make_verified(run, sampler), lambda rank, _: rank in ranks)
        if verified.errors:
            _report(run, sampler, verified)
    for rank, _ in ended:
        sampler.ranks[rank].begin()


def finish_verification(run: Run) -> VerificationResult:
    """Return the result of the whole run, after reporting errors of the last sample.

    Once the start of a rank was complete, only confirmed errors count: a helper may have run for a moment.
    """
    sampler = run.sampler
    assert sampler
    _judge_ended(run, sampler)
    verified = sampler.verified if sampler.complete else None
    if verified is None:
        early = [rank for rank, seen in sampler.ranks.items() if not seen.was_complete]
        verified = sampler.findings.confirm(_make_verified(run, sampler), at_once=early)
    if verified.errors:
        _report(run, sampler, verified, ended=True)
    last, run_s = sampler.findings.unconfirmed, time.monotonic() - sampler.began_at
    failed = next((rank_exit for rank_exit in run.exits if rank_exit.failed), None)
    failure = f"{NO_RANK}: {run.shutdown.error.message}" if run.shutdown.error else NO_RANK
    return sampler.findings.add_past_errors(verified).replace(
        ended=True,
        run_s=run_s,
        unconfirmed=(
            *((rank, issue) for rank, issue in last if issue.severity is Severity.ERROR),
            *(
                (rank, issue)
                for rank, seen in sorted(sampler.ranks.items())
                for issue in seen.find_load(run_s=run_s)
            ),
        ),
        stopped=sampler.stopped,
        failed=f"rank {failed.rank} {render_exit_status(failed)}" if failed else "",
        failure="" if run.exits or run.live else failure,
    )


def _report(run: Run, sampler: AffinitySampler, verified: VerificationResult, *, ended: bool = False) -> None:
    if sampler.findings.should_report(verified, ended=ended) and run.can_report:
        run.output.write(run.reporter.verified(verified))


def _make_verified(run: Run, sampler: AffinitySampler) -> VerificationResult:
    started = {child.rank for child in run.live.values()} | {each.rank for each in run.exits}
    ranks = [
        sampler.ranks[rank].verify(rank, expected, complete=sampler.complete, is_started=rank in started)
        for rank, (expected, _) in sorted((run.options.expected or {}).items())
    ]
    return VerificationResult(
        ranks=tuple(ranks),
        complete=sampler.complete,
        stable=sampler.stable,
        seen_s=sampler.seen_s,
        samples=sampler.samples,
        most_threads=sampler.most_threads,
        strict=run.options.strict,
    )
