"""What is expected of the threads of a rank, and processes whose right masks hide an absent binding."""

import pytest

from ompbind.cpuset import CpuSet
from ompbind.inspection.diagnosis import ExpectedBinding, expect_variables, select_variables
from ompbind.inspection.judge import judge
from ompbind.openmp.binding import Bind
from ompbind.text import Severity
from tests.inspection.test_judge import (
    GOMP,
    INTEL,
    LLVM,
    ONE_EACH,
    TORCH,
    WHOLE,
    WORKERS,
    cpus,
    plan,
    process,
)
from tests.inspection.test_rank_processes import OWN, RUN, inspect, rank

SERVICE = {"OMPBIND_RANK": "0", "OMPBIND_RUN_ID": "job", "OMPBIND_CPUS": "0-1", "OMPBIND_SERVICE_CPUS": "2-3"}
PLACED = {"OMP_PLACES": "{0,1,2,3},{0,1}", "OMP_PROC_BIND": "close"}


def variables(places, bind="close"):
    return {"OMP_PLACES": places, "OMP_PROC_BIND": bind} if places else {"OMP_PROC_BIND": "false"}


@pytest.mark.parametrize(("service", "places", "proc_bind", "more", "bind"), [
    (False, "{0,1,2,3}", "true", {}, Bind.RANK), (False, "{0:4},{1},{2},{3}", "close", {}, Bind.THREAD),
    (False, "{0,1,2,3},{2,3}", "spread", {}, Bind.CORE),
    (False, "{0},{1},{2},{3}", "close", {"KMP_AFFINITY": "reset"}, Bind.EXACT),
    (False, "", "", {}, Bind.NONE), (True, "{0,1,2,3},{0,1}", "close", {}, Bind.RANK),
    (True, "{0,1,2,3},{1}", "close", {}, Bind.THREAD), (True, "{0,1},{0,1}", "close", {}, Bind.EXACT),
])  # fmt: skip
def test_the_mode_of_a_rank_follows_from_its_variables(service, places, proc_bind, more, bind):
    own = SERVICE if service else {"OMPBIND_RANK": "0", "OMPBIND_RUN_ID": "job", "OMPBIND_CPUS": "0-3"}
    found = expect_variables({**own, **variables(places, proc_bind), **more})
    assert (found.rank, found.cpus, found.bind, found.run_id) == (0, cpus("0-3"), bind, "job")
    assert str(found.compute) == ("0-1" if service else "0-3")


def test_the_places_of_a_list_for_kmp_are_single_cpus():
    env = {"KMP_AFFINITY": "reset,granularity=fine,explicit,proclist=[4,6]", "OMPBIND_CPUS": "4,6"}
    expected = expect_variables({**env, "OMPBIND_RANK": "0"})
    assert (expected.bind, expected.places) == (Bind.EXACT, (CpuSet([4]), CpuSet([6])))


def test_nothing_is_expected_without_variables_of_ompbind():
    wrong = {"OMPBIND_RANK": "0"}, {"OMPBIND_RANK": "x", "OMPBIND_CPUS": "0"}, {**SERVICE, "OMPBIND_CPUS": ""}
    assert [*map(expect_variables, wrong)] == [None] * 3


@pytest.mark.parametrize(("masks", "env", "severity", "code"), [
    ("0-3 0-1 0-3*4", PLACED, Severity.OK, ""),
    ("0-3*5", PLACED, Severity.OK, ""),  # no region has run
    ("0-3*5", {}, Severity.ERROR, "unbound"),
    ("0-3*5", {"OMP_PROC_BIND": "false"}, Severity.ERROR, "unbound"),
    ("0-3 0-1 2-3", PLACED, Severity.NOTE, "confined"), ("0-3 0-1 4", PLACED, Severity.ERROR, "outside"),
])  # fmt: skip
def test_workers_stay_on_the_cpus_that_compute_beside_service_cpus(masks, env, severity, code):
    expected = ExpectedBinding(
        rank=0, cpus=cpus("0-3"), service_cpus=cpus("2-3"), places=(cpus("0-3"), cpus("0-1")),
        bind=Bind.RANK, variables=tuple(PLACED.items()),
    )  # fmt: skip
    verdict = judge([process(masks, TORCH, **SERVICE, **env)], expected)
    assert (verdict.severity, verdict.issues[0].code if verdict.issues else "") == (severity, code)


IDENTITY = {"OMPBIND_RUN_ID": "job", "OMPBIND_RANK": "0", "OMPBIND_CPUS": "0-1"}
FREE = {"OMP_PROC_BIND": "false"}
PLANNED = {Bind.RANK: WHOLE, Bind.THREAD: WORKERS, Bind.EXACT: ONE_EACH, Bind.NONE: FREE}
SHELL = process("0-1", name="sh", pid=50)


def rank_plan(bind):
    variables = select_variables({**PLANNED[bind], "OMP_NUM_THREADS": "2"})
    return plan(bind).replace(run_id="job", variables=variables)


def executed(masks, *libraries, env=None, **more):
    """Return a process that a rank started with two threads, with other variables if `env` is given."""
    return process(masks, *libraries, **{**IDENTITY, "OMP_NUM_THREADS": "2", **(env or {})}, **more)


WITHOUT_BOTH = "executed without OMP_PLACES and without OMP_PROC_BIND"


@pytest.mark.parametrize(("bind", "processes", "found", "text"), [
    (Bind.EXACT, [executed("0-1*2", GOMP)], "error unbound", WITHOUT_BOTH),
    (Bind.THREAD, [executed("0-1*2", LLVM)], "error unbound", "2 of 2 threads are not bound to places"),
    (Bind.RANK, [executed("0-1*2", GOMP)], "error environment", f"python (100) was {WITHOUT_BOTH}"),
    (Bind.EXACT, [executed("0-1", GOMP)], "error environment", WITHOUT_BOTH),
    (Bind.THREAD, [executed("0-1 1", GOMP, env={**WORKERS, "OMP_PROC_BIND": "spread"})],
     "error environment", "with OMP_PROC_BIND=spread (planned: close)"),
    (Bind.EXACT, [process("0-1*2", GOMP)], "error unbound", "OMP_NUM_THREADS"),  # env -i
    # it exports the variables, and the runtime has not applied them
    (Bind.EXACT, [executed("0-1*2", GOMP, env=ONE_EACH)], "error unbound", "libgomp did not bind them"),
    (Bind.EXACT, [executed("0-1*2", INTEL, env=ONE_EACH)], "ok", "all 2 threads"),  # not used yet
    (Bind.THREAD, [executed("0-1*9", GOMP, env=WORKERS)], "ok", "all 9 threads"),  # no region yet
    (Bind.THREAD, [executed("0-1*2", GOMP, unreadable=("environment",))], "ok", "all 2 threads"),
    # descendants
    (Bind.EXACT, [SHELL, executed("0-1*2", GOMP)], "error unbound", "threads of python (100)"),
    (Bind.RANK, [SHELL, executed("0-1*2", GOMP)], "note environment", WITHOUT_BOTH),
    (Bind.THREAD, [SHELL, executed("0-1 1", GOMP, env={**WORKERS, "OMP_NUM_THREADS": "1"})],
     "note environment", "python (100) was executed with OMP_NUM_THREADS=1 (planned: 2)"),
    (Bind.RANK, [executed("0-1", GOMP, env={**WHOLE, "KMP_AFFINITY": "none"})],
     "note environment", "with KMP_AFFINITY=none (planned: unset)"),
])  # fmt: skip
def test_processes_executed_with_other_variables(bind, processes, found, text):
    verdict = judge(processes, rank_plan(bind))
    assert " ".join([str(verdict.severity), *(issue.code for issue in verdict.issues[:1])]) == found
    assert text in verdict.text


def test_a_list_of_cpus_is_a_binding_too():
    listed = {"KMP_AFFINITY": "granularity=fine,explicit,proclist=[0,1]"}
    expected = plan(Bind.EXACT).replace(run_id="job", variables=select_variables(listed))
    assert judge([process("0-1*2", INTEL, **IDENTITY, **listed)], expected).severity is Severity.OK
    verdict = judge([process("0-1", INTEL, **IDENTITY)], expected)
    assert (verdict.issues[0].code, verdict.severity) == ("environment", Severity.ERROR)


def test_places_that_are_too_long_to_be_written_are_not_missed():
    expected = plan(Bind.EXACT, "0-2000").replace(run_id="job", variables=select_variables(FREE))
    observed = process("0-2000*3", GOMP, **{**IDENTITY, "OMPBIND_CPUS": "0-2000"}, **FREE)
    assert judge([observed], expected).severity is Severity.OK


@pytest.mark.parametrize(("mode", "env", "code"), [
    *((mode, env, "unbound") for mode in ("thread", "core", "exact") for env in ({}, FREE)),
    *((mode, env, code) for mode in ("rank", "none") for env, code in (({}, "environment"), (FREE, ""))),
])  # fmt: skip  # in modes without places, ompbind may have set OMP_PROC_BIND=false
def test_inspect_finds_removed_variables_by_the_mode_of_the_run(mode, env, code):
    runs = (RUN.replace(bind=mode),)
    group = inspect(*OWN, rank(0, "0-1*2", GOMP, pid=12, **env), runs=runs).groups[0]
    assert [issue.code for issue in group.verdict.issues] == ([code] if code else [])
    assert group.expected.bind == mode or mode in ("rank", "none")
