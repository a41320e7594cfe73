"""Whether threads run where they should: what follows from looks at them, for a run and for its user.

Threads that may run outside of the CPUs of their rank are told at once, all else when threads have settled:
while a program still loads its libraries, much is only half done.
"""

import signal
import time

from ompbind.cpuset import named
from ompbind.errors import LaunchError
from ompbind.execution.run_options import RunOptions
from ompbind.execution.run_state import Run
from ompbind.execution.verify.sampler import Sampler
from ompbind.inspection.judge import judge, judge_memory
from ompbind.inspection.verdict import HIDDEN, RankVerified, Verified


def look_at_threads(run: Run, sampler: Sampler) -> None:
    """Look at the threads of all ranks, and say what there is to say; a run that is to end is left alone."""
    if run.shutdown.begun or not run.children.live:
        sampler.stop()
        return
    sampler.look(run.children.ranks, time.monotonic())
    if not (sampler.settled or sampler.escaped):
        return
    verified = _make_verified(sampler, run.options)
    sampler.verified = verified if sampler.settled else _only_escaped(sampler, verified)
    if sampler.settled or sampler.verified.problems:
        _report(run, sampler, sampler.verified)


def conclude(run: Run, sampler: Sampler) -> None:
    """All ranks have ended: what was seen last counts of those that had not settled before.

    A run that was asked to end before, or in which a rank has failed, tells nothing but problems.
    """
    if sampler.settled or run.shutdown.error:
        return
    sampler.verified = verified = _make_verified(sampler, run.options)
    if sampler.error is None and (verified.problems or not _is_decided(run)):
        _report(run, sampler, verified)


def _report(run: Run, sampler: Sampler, verified: Verified) -> None:
    """Say what was seen, unless all that is wrong was said before; with `strict` a problem ends the run."""
    if not sampler.is_news(verified):
        return
    if run.is_heard:
        run.output.write(run.reporter.verified(verified))
    if verified.problems and verified.strict and not (sampler.error or _is_decided(run)):
        sampler.error = _make_error(verified)
        if run.children.live:
            run.stop(signal.SIGTERM)


def _is_decided(run: Run) -> bool:
    """Tell whether the run is being stopped, or is over and a rank has failed: its exit code is decided."""
    return run.shutdown.begun or (run.children.have_failed and not run.children.live)


def _make_verified(sampler: Sampler, options: RunOptions) -> Verified:
    """Judge every rank by the last picture of it."""
    ranks = []
    for rank, (expected, _) in sorted((options.expected or {}).items()):
        picture = sampler.snapshots.get(rank)
        if picture is None:
            ranks.append(RankVerified(rank=rank, hidden=rank in sampler.hidden))
            continue
        verdict = judge_memory(judge(picture.processes, expected), picture.memory, expected)
        ranks.append(RankVerified(rank=rank, verdict=verdict, seen_s=picture.seen_s, memory=picture.memory))
    settled, stable, seen_s = sampler.settled, sampler.stable, sampler.seen_s
    return Verified(ranks=tuple(ranks), settled=settled, stable=stable, seen_s=seen_s, strict=options.strict)


def _only_escaped(sampler: Sampler, verified: Verified) -> Verified:
    """Leave what is said of strays, and of them only that they are: all else may still become right."""
    ranks = []
    for one in verified.ranks:
        if one.rank in sampler.escaped and one.verdict:
            outside = tuple(issue for issue in one.verdict.issues if issue.code == "outside")
            ranks.append(one.replace(verdict=one.verdict.replace(issues=outside)))
    return verified.replace(ranks=tuple(ranks))


def _make_error(verified: Verified) -> LaunchError:
    wrong = {rank for rank, code in verified.problems if code != HIDDEN}
    ranks = named("rank", wrong or {rank for rank, _ in verified.problems})
    if wrong:
        message, helps = f"the threads of {ranks} did not run as planned", "what is above says why"
    else:
        message, helps = f"{ranks} could not be looked at", "mount a /proc that shows them"
    return LaunchError(f"--verify=strict: {message}", hint=f"{helps}; without =strict the run goes on")
