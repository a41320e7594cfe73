"""The settings of runs and the rules of a session, from the values of options."""

import shlex

import pytest

from ompbind.bench.records import Candidate, Combine, Kind, Metric, Rules
from ompbind.bench.start_ranks import CandidateStart, MeasuringSettings
from ompbind.cli.bench_session import make_measuring_settings, make_rules
from ompbind.cpuset import CpuSet
from ompbind.errors import CommandNotFoundError, PositionError, RequestError
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.rank_command import RunSpec, make_commands
from ompbind.planning.request import Request
from tests.cli.command_lines import read_bench

METRIC = "--metric 'rate: ([0-9.]+)'"
SERVER = f"{METRIC} --duration 20"
LOAD = """--load 'sh -c "load {size} {cpus}"'"""


def make_start(**request):
    spec = RunSpec(argv=("serve",), run_id="bench", base={"PATH": "/usr/bin:/bin"})
    plan = make_plan(read_machine("synthetic:pack:1 core:4 pu:2"), Request(**request), ())
    candidate = Candidate(name=str(request), kind=Kind.VARIED, ranks=len(plan.placements))
    return CandidateStart(candidate=candidate, plan=plan, spec=spec, commands=make_commands(plan, spec))


def settings(words, *starts):
    return make_measuring_settings(read_bench(*shlex.split(words)), starts)


def test_without_options_the_wall_time_counts_without_limit():
    assert settings("") == MeasuringSettings(run_id="test", metrics=(Metric(),), timeout_s=None, grace_s=10.0)
    assert settings("--timeout 0") == settings("")
    assert settings("--timeout 3").timeout_s == 3.0


def test_a_metric_has_its_direction_and_how_ranks_are_combined():
    (metric,) = settings(f"{METRIC} --higher").metrics
    assert (metric.name, metric.higher, metric.combine) == ("rate", True, Combine.SUM)
    (metric,) = settings(f"{METRIC} --combine mean").metrics
    assert (metric.higher, metric.combine) == (False, Combine.MEAN)


def test_the_load_generator_gets_the_cpus_that_all_candidates_reserve():
    starts = make_start(reserve_total=1), make_start(ranks=2, reserve_total=2)
    made = settings(f"{SERVER} {LOAD} --ready tcp:{{rank+8000}}", *starts)
    service = made.service
    assert (service.duration_s, service.ready) == (20.0, "tcp:{rank+8000}")
    assert service.load == ("sh", "-c", "load {size} {cpus}")
    assert made.load_cpus == CpuSet((6, 7))


def test_a_load_generator_without_reserved_cpus_is_refused_with_the_candidate():
    starts = make_start(reserve_total=1), make_start(ranks=2)
    with pytest.raises(RequestError, match=r"candidate \"\{'ranks': 2\}\" reserves none") as raised:
        settings(f"{SERVER} {LOAD}", *starts)
    assert "--reserve-total 1" in raised.value.hint


def test_without_load_generator_no_cpu_must_be_reserved():
    made = settings(SERVER, make_start())
    assert (made.service.load, made.load_cpus) == ((), None)


def test_what_cannot_work_for_a_candidate_is_refused_before_the_session():
    start = make_start(ranks=4, reserve_total=0)
    with pytest.raises(PositionError, match="65536"):
        settings(f"{SERVER} --ready tcp:{{rank+65533}}", start)
    with pytest.raises(CommandNotFoundError):
        settings(f"{SERVER} --load no-such-program", make_start(reserve_total=1))


@pytest.mark.parametrize(
    ("words", "same_work"), [("", False), (METRIC, True), (SERVER, True), ("--fixed-work", True)]
)
def test_candidates_do_the_same_work_if_an_option_says_what_their_work_is(words, same_work):
    rules = make_rules(read_bench("--seed", "5", *shlex.split(words)))
    assert rules == Rules(same_work=same_work, matters=0.02, max_rounds=40, seed=5)


def test_without_seed_sessions_have_different_seeds():
    seeds = {make_rules(read_bench()).seed for _ in range(5)}
    assert len(seeds) == 5
    assert make_rules(read_bench("--seed", "0")).seed == 0
