"""Ranks with service CPUs: OpenMP workers stay on the CPUs that compute, all other threads may use both."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.inspection.expectation import ExpectedBinding, expect_variables
from ompbind.inspection.judge import judge
from ompbind.inspection.rank_processes import ObservedProcesses, make_inspection
from ompbind.openmp.binding import Bind
from ompbind.planning.other_runs import LiveRun
from ompbind.text import Severity
from tests.inspection.test_judge import TORCH, cpus, process

PLACED = {"OMP_PLACES": "{0,1,2,3},{0,1}", "OMP_PROC_BIND": "close"}
RANK = {"OMPBIND_RANK": "0", "OMPBIND_RUN_ID": "job", "OMPBIND_CPUS": "0-1", "OMPBIND_SERVICE_CPUS": "2-3"}
EXPECTED = ExpectedBinding(
    rank=0,
    cpus=cpus("0-3"),
    service_cpus=cpus("2-3"),
    places=(cpus("0-3"), cpus("0-1")),
    bind=Bind.RANK,
    variables=tuple(PLACED.items()),
)


@pytest.mark.parametrize(
    ("masks", "env", "severity", "code"),
    [
        ("0-3 0-1 0-3*4", PLACED, Severity.OK, ""),
        ("0-3*5", PLACED, Severity.OK, ""),  # no region has run
        ("0-3*5", {}, Severity.ERROR, "unbound"),
        ("0-3*5", {"OMP_PROC_BIND": "false"}, Severity.ERROR, "unbound"),
        ("0-3 0-1*7", PLACED, Severity.OK, ""),  # threads may move in the place
        ("0-3 0-1 2-3", PLACED, Severity.NOTE, "confined"),
        ("0-3 0-1 4", PLACED, Severity.ERROR, "outside"),
    ],
)
def test_masks_of_a_rank_with_service_cpus(masks, env, severity, code):
    verdict = judge([process(masks, TORCH, **RANK, **env)], EXPECTED)
    assert (verdict.severity, verdict.issues[0].code if verdict.issues else "") == (severity, code)


@pytest.mark.parametrize(
    ("places", "bind"),
    [
        ("{0,1,2,3},{0,1}", Bind.RANK),
        ("{0,1,2,3}", Bind.RANK),
        ("{0,1,2,3},{1}", Bind.THREAD),
        ("{0,1,2,3},{0},{1}", Bind.THREAD),
        ("{0,1},{0,1}", Bind.EXACT),
        ("", Bind.NONE),
    ],
)
def test_the_mode_follows_from_the_places(places, bind):
    env = {"OMP_PLACES": places, "OMP_PROC_BIND": "close"} if places else {"OMP_PROC_BIND": "false"}
    expected = expect_variables({**RANK, **env})
    assert (expected.bind, expected.cpus, expected.service_cpus) == (bind, cpus("0-3"), cpus("2-3"))
    assert expected.compute == cpus("0-1")


@pytest.mark.parametrize(
    ("bind", "compute", "places", "masks"),
    [
        ("rank", "0-1", "{0,1,2,3},{0,1}", "0-3 0-1"),
        ("rank", "0", "{0,2,3},{0}", "0,2-3 0"),
        ("thread", "0", "{0,2,3},{0}", "0,2-3 0"),
        ("thread", "0-1", "{0,1,2,3},{1}", "0-3 1"),
        ("core", "0-1", "{0,1,2,3},{0,1}", "0-3 0-1"),
        ("none", "0-1", "", "0-3*2"),
        ("rank", "0-1", "", "0-3*2"),  # with a runtime whose forked children crash with places
    ],
)
def test_inspect_uses_the_mode_of_the_run(bind, compute, places, masks):
    """With one CPU that computes, the variables are the same in several modes."""
    env = {"OMP_PLACES": places, "OMP_PROC_BIND": "close"} if places else {"OMP_PROC_BIND": "false"}
    whole = cpus(compute) | cpus("2-3")
    run = LiveRun(run_id="job", pid=10, uid=1, started=1, ranks=((0, whole),), claimed=whole, bind=bind)
    rank = process(masks, TORCH, pid=12, **{**RANK, "OMPBIND_CPUS": compute}, **env)
    (group,) = make_inspection(ObservedProcesses(processes={12: rank}, runs=(run,))).groups
    assert group.expected.bind == bind
    assert group.verdict.severity is Severity.OK


def test_places_of_the_command_are_not_those_of_the_run():
    env = {"OMP_PLACES": "{0},{1}", "OMP_PROC_BIND": "close"}
    run = LiveRun(
        run_id="job", pid=10, uid=1, started=1, ranks=((0, cpus("0-3")),), claimed=cpus("0-3"), bind="rank"
    )
    for masks, severity in (("0 1", Severity.ERROR), ("0-3 0-1", Severity.OK)):
        rank = process(masks, TORCH, pid=12, **{**RANK, **env})
        (group,) = make_inspection(ObservedProcesses(processes={12: rank}, runs=(run,))).groups
        assert group.verdict.severity is severity


def test_an_expectation_without_service_cpus_has_one_place():
    assert not EXPECTED.replace(places=(cpus("0-3"),), service_cpus=CpuSet()).binds_workers
    assert EXPECTED.binds_workers
