"""Whether threads run where they should: what follows from looks at them, for a run and for its user.

Threads that may run outside of the CPUs of their rank are told at once, all else when threads have settled:
while a program still loads its libraries, much is only half done.
"""

import signal
import time

from ompbind.cpuset import named
from ompbind.errors import LaunchError
from ompbind.execution.run_state import Run
from ompbind.execution.signals import ask_to_stop
from ompbind.execution.verify.sampler import Settling, Verify
from ompbind.inspection.judge import judge, judge_memory
from ompbind.inspection.verification import HIDDEN, RankVerified, Verified

_OUTSIDE = "outside"
"""The code of findings that are told at once."""


def look_at_threads(run: Run, settling: Settling) -> None:
    """Look at the threads of all ranks, and say what there is to say; a run that is to end is left alone."""
    if run.ladder.begun or not run.live:
        settling.due_at = None
        return
    settling.look({pid: one.rank for pid, one in run.live.items()}, time.monotonic())
    if settling.settled:
        run.verified = _make_verified(settling)
        _tell(run, settling.verify, run.verified)
    elif settling.strays:
        run.verified = _only_strays(settling, _make_verified(settling))
        if run.verified.problems:
            _tell(run, settling.verify, run.verified)


def conclude(run: Run, settling: Settling) -> None:
    """All ranks have ended: what was seen last counts of those that had not settled before.

    A run that was asked to end before, or in which a rank has failed, tells nothing but problems.
    """
    if settling.settled or run.failures:
        return
    verified = _make_verified(settling)
    if run.unverified is None and (verified.problems or not (run.ladder.begun or _has_failed(run))):
        _tell(run, settling.verify, verified)
    run.verified = verified


def _make_verified(settling: Settling) -> Verified:
    """Judge every rank by the last picture of it."""
    ranks = []
    for rank, (expected, _) in sorted(settling.verify.expected.items()):
        picture = settling.pictures.get(rank)
        if picture is None:
            ranks.append(RankVerified(rank=rank, hidden=rank in settling.hidden))
            continue
        verdict = judge_memory(judge(picture.processes, expected), picture.memory, expected)
        ranks.append(RankVerified(rank=rank, verdict=verdict, seen_s=picture.seen_s, memory=picture.memory))
    return Verified(
        ranks=tuple(ranks),
        settled=settling.settled,
        calm=settling.calm,
        seen_s=settling.seen_s,
        strict=settling.verify.strict,
    )


def _only_strays(settling: Settling, verified: Verified) -> Verified:
    """Leave what is said of strays, and of them only that they are: all else may still become right."""
    ranks = []
    for one in verified.ranks:
        if one.rank in settling.strays and one.verdict:
            outside = tuple(finding for finding in one.verdict.findings if finding.code == _OUTSIDE)
            ranks.append(one.replace(verdict=one.verdict.replace(findings=outside)))
    return verified.replace(ranks=tuple(ranks))


def _tell(run: Run, verify: Verify, verified: Verified) -> None:
    """Say what was seen, unless all that is wrong was said before; with `strict` a problem ends the run."""
    problems = verified.problems
    if problems and problems <= run.told:
        return
    run.told |= problems
    if not (run.unread or run.front_is_gone):
        run.write(verify.word(verified))
    if problems and verify.strict and not (run.unverified or run.ladder.begun or _has_failed(run)):
        run.unverified = _make_error(verified)
        if run.live:
            ask_to_stop(run, signal.SIGTERM)


def _has_failed(run: Run) -> bool:
    """Tell whether a run that is over has failed already, with a rank: that is its exit code then."""
    return not run.live and any(exited.failed for exited in run.exits)


def _make_error(verified: Verified) -> LaunchError:
    wrong = {rank for rank, code in verified.problems if code != HIDDEN}
    if not wrong:
        ranks = named("rank", {rank for rank, _ in verified.problems})
        return LaunchError(
            f"--verify=strict: {ranks} could not be looked at",
            hint="mount a /proc that shows them; without =strict the run goes on",
        )
    return LaunchError(
        f"--verify=strict: the threads of {named('rank', wrong)} did not run as planned",
        hint="what is above says why; without =strict the run goes on",
    )
