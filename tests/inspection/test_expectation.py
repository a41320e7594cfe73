"""What is expected of the threads of a rank: from its variables, its run, and its service CPUs."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.inspection.diagnosis import ExpectedBinding, expect_variables, is_relevant
from ompbind.inspection.judge import judge
from ompbind.inspection.rank_processes import ObservedProcesses, make_inspection
from ompbind.openmp.binding import Bind
from ompbind.planning.other_runs import LiveRun
from ompbind.text import Severity
from tests.inspection.test_judge import TORCH, cpus, process

SERVICE = {"OMPBIND_RANK": "0", "OMPBIND_RUN_ID": "job", "OMPBIND_CPUS": "0-1", "OMPBIND_SERVICE_CPUS": "2-3"}
PLACED = {"OMP_PLACES": "{0,1,2,3},{0,1}", "OMP_PROC_BIND": "close"}


def variables(places, bind="close"):
    return {"OMP_PLACES": places, "OMP_PROC_BIND": bind} if places else {"OMP_PROC_BIND": "false"}


@pytest.mark.parametrize(
    ("service", "places", "proc_bind", "more", "bind"),
    [
        (False, "{0,1,2,3}", "true", {}, Bind.RANK),
        (False, "{0:4},{1},{2},{3}", "close", {}, Bind.THREAD),
        (False, "{0,1,2,3},{2,3}", "spread", {}, Bind.CORE),
        (False, "{0},{1},{2},{3}", "close", {"KMP_AFFINITY": "reset"}, Bind.EXACT),
        (False, "", "", {}, Bind.NONE),
        (False, "{0},{1}", "false", {}, Bind.NONE),
        (True, "{0,1,2,3},{0,1}", "close", {}, Bind.RANK),
        (True, "{0,1,2,3}", "close", {}, Bind.RANK),
        (True, "{0,1,2,3},{1}", "close", {}, Bind.THREAD),
        (True, "{0,1,2,3},{0},{1}", "close", {}, Bind.THREAD),
        (True, "{0,1},{0,1}", "close", {}, Bind.EXACT),
        (True, "", "", {}, Bind.NONE),
    ],
)
def test_the_mode_of_a_rank_follows_from_its_variables(service, places, proc_bind, more, bind):
    own = SERVICE if service else {"OMPBIND_RANK": "0", "OMPBIND_RUN_ID": "job", "OMPBIND_CPUS": "0-3"}
    found = expect_variables({**own, **variables(places, proc_bind), **more})
    assert (found.rank, found.cpus, found.bind, found.run_id) == (0, cpus("0-3"), bind, "job")
    assert str(found.compute) == ("0-1" if service else "0-3")


def test_the_places_of_a_list_for_kmp_are_single_cpus():
    env = {"KMP_AFFINITY": "reset,granularity=fine,explicit,proclist=[4,6]", "OMPBIND_CPUS": "4,6"}
    expected = expect_variables({**env, "OMPBIND_RANK": "0"})
    assert (expected.bind, expected.places) == (Bind.EXACT, (CpuSet([4]), CpuSet([6])))


@pytest.mark.parametrize("env", [{}, {"OMPBIND_RANK": "0"}, {"OMPBIND_RANK": "x", "OMPBIND_CPUS": "0"},
                                 {"OMPBIND_RANK": "0", "OMPBIND_CPUS": ""}])  # fmt: skip
def test_nothing_is_expected_without_variables_of_ompbind(env):
    assert expect_variables(env) is None


def test_variables_that_concern_threads_are_relevant():
    names = ("OMP_PLACES", "TF_NUM_THREADS", "OMPBIND_RANK", "LD_PRELOAD", "COMPILER_OMP", "PATH", "")
    assert list(filter(is_relevant, names)) == list(names[:4])


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
def test_workers_stay_on_the_cpus_that_compute_beside_service_cpus(masks, env, severity, code):
    expected = ExpectedBinding(
        rank=0, cpus=cpus("0-3"), service_cpus=cpus("2-3"), places=(cpus("0-3"), cpus("0-1")),
        bind=Bind.RANK, variables=tuple(PLACED.items()),
    )  # fmt: skip
    verdict = judge([process(masks, TORCH, **SERVICE, **env)], expected)
    assert (verdict.severity, verdict.issues[0].code if verdict.issues else "") == (severity, code)


@pytest.mark.parametrize(
    ("bind", "compute", "places", "masks", "severity"),
    [
        ("rank", "0-1", "{0,1,2,3},{0,1}", "0-3 0-1", "ok"),
        ("rank", "0", "{0,2,3},{0}", "0,2-3 0", "ok"),
        ("thread", "0", "{0,2,3},{0}", "0,2-3 0", "ok"),
        ("thread", "0-1", "{0,1,2,3},{1}", "0-3 1", "ok"),
        ("core", "0-1", "{0,1,2,3},{0,1}", "0-3 0-1", "ok"),
        ("none", "0-1", "", "0-3*2", "ok"),
        ("rank", "0-1", "", "0-3*2", "ok"),  # with a runtime whose forked children crash with places
        ("rank", "0-1", "{0},{1}", "0 1", "error"),  # places of the command
        ("rank", "0-1", "{0},{1}", "0-3 0-1", "ok"),
    ],
)
def test_inspect_uses_the_mode_of_the_run_beside_service_cpus(bind, compute, places, masks, severity):
    """With one CPU that computes, the variables are the same in several modes."""
    whole = cpus(compute) | cpus("2-3")
    run = LiveRun(run_id="job", pid=10, uid=1, started=1, ranks=((0, whole),), claimed=whole, bind=bind)
    rank = process(masks, TORCH, pid=12, **{**SERVICE, "OMPBIND_CPUS": compute}, **variables(places))
    (group,) = make_inspection(ObservedProcesses(processes={12: rank}, runs=(run,))).groups
    assert (group.expected.bind, str(group.verdict.severity)) == (bind, severity)
