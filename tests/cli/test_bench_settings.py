"""The settings of runs and the rules of a session, from the values of options."""

import pytest

from ompbind.bench.records import Candidate, Combine, Kind, Metric, Rules
from ompbind.bench.starts import CandidateStart, RunSettings
from ompbind.cli.bench_settings import make_rules, make_settings
from ompbind.cpuset import CpuSet
from ompbind.errors import CommandNotFoundError, PositionError, RequestError
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import RunSpec, make_commands
from ompbind.planning.request import Request

DEFAULTS = {
    "metric": (),
    "higher": False,
    "combine": None,
    "fixed_work": False,
    "duration": None,
    "ready": "",
    "load": None,
    "max_rounds": 40,
    "matters": 0.02,
    "seed": 5,
    "timeout": None,
    "grace": 10.0,
}
METRIC = (r"rate: ([0-9.]+)",)
LOAD = ("sh", "-c", "load {size} {cpus}")


def make_start(**request):
    spec = RunSpec(argv=("serve",), run_id="bench", base={"PATH": "/usr/bin:/bin"})
    plan = make_plan(read_machine("synthetic:pack:1 core:4 pu:2"), Request(**request), ())
    candidate = Candidate(name=str(request), kind=Kind.VARIED, ranks=len(plan.placements))
    return CandidateStart(candidate=candidate, plan=plan, spec=spec, commands=make_commands(plan, spec))


def settings(*starts, **values):
    return make_settings({**DEFAULTS, **values}, "bench", starts)


def test_without_options_the_wall_time_counts_without_limit():
    assert settings() == RunSettings(run_id="bench", metrics=(Metric(),), timeout_s=None, grace_s=10.0)
    assert settings(timeout=0.0) == settings()
    assert settings(timeout=3.0).timeout_s == 3.0


def test_a_metric_has_its_direction_and_how_ranks_are_combined():
    (metric,) = settings(metric=METRIC, higher=True).metrics
    assert (metric.name, metric.higher, metric.combine) == ("rate", True, Combine.SUM)
    (metric,) = settings(metric=METRIC, combine="mean").metrics
    assert (metric.higher, metric.combine) == (False, Combine.MEAN)


def test_a_wrong_pattern_is_refused():
    with pytest.raises(PositionError):
        settings(metric=("rate: [0-9.]+",))


def test_the_load_generator_gets_the_cpus_that_all_candidates_reserve():
    starts = make_start(reserve_total=1), make_start(ranks=2, reserve_total=2)
    made = settings(*starts, metric=METRIC, duration=20.0, ready="tcp:{rank+8000}", load=LOAD)
    service = made.service
    assert (service.duration_s, service.ready, service.load) == (20.0, "tcp:{rank+8000}", LOAD)
    assert made.load_cpus == CpuSet((6, 7))


def test_a_load_generator_without_reserved_cpus_is_refused_with_the_candidate():
    starts = make_start(reserve_total=1), make_start(ranks=2)
    with pytest.raises(RequestError, match=r"candidate \"\{'ranks': 2\}\" reserves none") as raised:
        settings(*starts, metric=METRIC, duration=20.0, load=LOAD)
    assert "--reserve-total 1" in raised.value.hint


def test_without_load_generator_no_cpu_must_be_reserved():
    made = settings(make_start(), metric=METRIC, duration=20.0)
    assert (made.service.load, made.load_cpus) == ((), None)


def test_what_cannot_work_for_a_candidate_is_refused_before_the_session():
    start = make_start(ranks=4, reserve_total=0)
    with pytest.raises(PositionError, match="65536"):
        settings(start, metric=METRIC, duration=20.0, ready="tcp:{rank+65533}")
    with pytest.raises(CommandNotFoundError):
        settings(make_start(reserve_total=1), metric=METRIC, duration=20.0, load=("no-such-program",))


@pytest.mark.parametrize(
    ("values", "same_work"),
    [
        ({}, False),
        ({"metric": METRIC}, True),
        ({"metric": METRIC, "duration": 20.0}, True),
        ({"fixed_work": True}, True),
    ],
)
def test_candidates_do_the_same_work_if_an_option_says_what_their_work_is(values, same_work):
    rules = make_rules({**DEFAULTS, **values})
    assert rules == Rules(same_work=same_work, matters=0.02, max_rounds=40, seed=5)


def test_without_seed_sessions_have_different_seeds():
    seeds = {make_rules({**DEFAULTS, "seed": None}).seed for _ in range(5)}
    assert len(seeds) == 5
    assert make_rules({**DEFAULTS, "seed": 0}).seed == 0
