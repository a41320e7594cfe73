"""Candidates for the tests of `ompbind bench` that run them."""

import os

from ompbind.bench.records import Candidate, Kind, Metric
from ompbind.bench.run_candidate import CandidateStart, MeasuringSettings
from ompbind.commands.environment import RunSpec
from ompbind.commands.rank_command import RankCommand, make_commands
from ompbind.machine.read import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from tests.live.conftest import clean_environment


def make_settings(**changes):
    """Settings of runs of the session with this process's pid in its name."""
    return MeasuringSettings(
        **{"run_id": f"bench-{os.getpid()}", "metrics": (Metric(),), "grace_s": 10.0, **changes}
    )


def make_start(*argv, ranks=1, bound=True, env=None, **request):
    """A candidate that runs a command: ompbind's default plan, or without ompbind."""
    env = clean_environment(**(env or {}))
    spec = RunSpec(argv=argv, run_id=make_settings().run_id, base=env)
    kind = Kind.DEFAULT if bound else Kind.UNBOUND
    candidate = Candidate(name=str(kind), kind=kind, ranks=ranks)
    if not bound:
        commands = tuple(RankCommand(rank=rank, argv=argv, env=env, cpus=None) for rank in range(ranks))
        return CandidateStart(candidate=candidate, plan=None, spec=spec, commands=commands)
    plan = make_plan(read_machine(), Request(ranks=ranks, sharing=Sharing.SHARE, **request), ())
    return CandidateStart(candidate=candidate, plan=plan, spec=spec, commands=make_commands(plan, spec))
