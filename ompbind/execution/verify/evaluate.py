"""What samples of threads mean for a run: a report, and with --verify=strict an error that stops it.

sample                                   reported
threads allowed outside their rank's     as soon as two samples in a row show it
  CPUs
everything else                          when sampling is complete: while a program still loads its
                                         libraries, threads are only partly bound
a run that exits before that             at its end, from the last sample
"""

import signal
import time

from ompbind.cpuset import named
from ompbind.errors import LaunchError
from ompbind.execution.run_options import RunOptions
from ompbind.execution.run_state import RunState
from ompbind.execution.verify.sampler import AffinitySampler
from ompbind.inspection.judge import judge, judge_memory_policy
from ompbind.inspection.verdict import HIDDEN, RankVerification, VerificationResult


def sample_affinities(run: RunState, sampler: AffinitySampler) -> None:
    """Sample the threads of all ranks and report a final result; do nothing if the run is being stopped."""
    if run.shutdown.begun or not run.children.live:
        sampler.stop()
        return
    sampler.sample(run.children.ranks, time.monotonic())
    if not (sampler.complete or sampler.escaped):
        return
    verified = _make_verified(sampler, run.options)
    sampler.verified = verified if sampler.complete else _keep_escaped(sampler, verified)
    if sampler.complete or sampler.verified.errors:
        _report(run, sampler, sampler.verified)


def finish_verification(run: RunState, sampler: AffinitySampler) -> None:
    """Report the last samples after all ranks have exited, unless sampling was complete before.

    Of a run that was stopped, or in which a rank has failed, only errors are reported.
    """
    if sampler.complete or run.shutdown.error:
        return
    sampler.verified = verified = _make_verified(sampler, run.options)
    if sampler.error is None and (verified.errors or not _is_exit_code_decided(run)):
        _report(run, sampler, verified)


def _report(run: RunState, sampler: AffinitySampler, verified: VerificationResult) -> None:
    """Report the result unless all its errors were reported before; with `strict` an error stops the run."""
    if not sampler.should_report(verified):
        return
    if run.can_report:
        run.output.write(run.reporter.verified(verified))
    if verified.errors and verified.strict and not (sampler.error or _is_exit_code_decided(run)):
        sampler.error = _make_error(verified)
        if run.children.live:
            run.stop(signal.SIGTERM)


def _is_exit_code_decided(run: RunState) -> bool:
    """Return whether the run is being stopped, or all ranks have exited and one of them has failed."""
    return run.shutdown.begun or (run.children.has_failed_rank and not run.children.live)


def _make_verified(sampler: AffinitySampler, options: RunOptions) -> VerificationResult:
    """Compare the last snapshot of every rank with its plan."""
    ranks = []
    for rank, (expected, _) in sorted((options.expected or {}).items()):
        snapshot = sampler.snapshots.get(rank)
        if snapshot is None:
            ranks.append(RankVerification(rank=rank, hidden=rank in sampler.hidden))
            continue
        verdict = judge(snapshot.processes, expected)
        verdict = judge_memory_policy(verdict, snapshot.memory, expected)
        ranks.append(
            RankVerification(rank=rank, verdict=verdict, seen_s=snapshot.seen_s, memory=snapshot.memory)
        )
    complete, stable, seen_s = sampler.complete, sampler.stable, sampler.seen_s
    return VerificationResult(
        ranks=tuple(ranks), complete=complete, stable=stable, seen_s=seen_s, strict=options.strict
    )


def _keep_escaped(sampler: AffinitySampler, verified: VerificationResult) -> VerificationResult:
    """Keep only ranks with escaped threads, and only their "outside" issues: the others may still change."""
    ranks = []
    for checked in verified.ranks:
        if checked.rank in sampler.escaped and checked.verdict:
            outside = tuple(issue for issue in checked.verdict.issues if issue.code == "outside")
            ranks.append(checked.replace(verdict=checked.verdict.replace(issues=outside)))
    return verified.replace(ranks=tuple(ranks))


def _make_error(verified: VerificationResult) -> LaunchError:
    wrong = {rank for rank, code in verified.errors if code != HIDDEN}
    ranks = named("rank", wrong or {rank for rank, _ in verified.errors})
    if wrong:
        message, hint = (
            f"the threads of {ranks} did not run as planned",
            "the messages above show the reasons",
        )
    else:
        message, hint = f"{ranks} could not be sampled", "mount a /proc that shows them"
    return LaunchError(f"--verify=strict: {message}", hint=f"{hint}; with --verify alone the run goes on")
