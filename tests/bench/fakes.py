"""A session with fakes in place of ranks and statistics: each run takes no time, and five rounds decide."""

from ompbind.bench.records import Candidate, Hardware, Kind, NextRound, Rules, Run, Session
from ompbind.bench.run_candidate import CandidateStart
from ompbind.commands.environment import RunSpec

NAMES = ("unbound", "default", "smt=2")
ROUNDS = 5


def make_session(**changes):
    kinds = (Kind.UNBOUND, Kind.DEFAULT, Kind.VARIED)
    candidates = tuple(
        Candidate(name=name, kind=kind, ranks=2, digest=f"digest of {name}")
        for name, kind in zip(NAMES, kinds, strict=True)
    )
    values = {
        "version": "1",
        "started": 1.5,
        "hardware": Hardware(hostname="here", processor="fast", allowed="0-3", quota=2.5, digest="abc"),
        "command": ("./app", "a b"),
        "rules": Rules(seed=7),
        "candidates": candidates,
    }
    return Session(**{**values, **changes})


def make_starts(session):
    spec = RunSpec(run_id="fake", argv=session.command, base={})
    return tuple(
        CandidateStart(candidate=candidate, plan=None, spec=spec, commands=())
        for candidate in session.candidates
    )


def find_next(session, decided_after=ROUNDS):
    """Decide after some rounds; the rest of a round that was stopped comes first."""
    rounds, started = divmod(len(session.runs), len(session.candidates))
    if rounds > decided_after:
        return NextRound(round=rounds, candidates=(), ended="decided")
    ran = {run.candidate for run in session.runs[len(session.runs) - started :]}
    names = tuple(candidate.name for candidate in session.candidates if candidate.name not in ran)
    return NextRound(round=rounds, candidates=names)


def make_run(start, number, round_number):
    seconds = 1.0 + number / 100
    return Run(
        candidate=start.candidate.name,
        number=number,
        round=round_number,
        started=1.0,
        values=(seconds,),
        wall_s=(seconds, seconds / 2),
    )
