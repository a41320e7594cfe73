"""Verdicts on threads: a table of processes of real programs, each with the plans that it may have had.

Then what is expected of the threads of a rank, and processes whose right masks hide an absent binding.

A process is written as the masks of its threads, initial thread first: "0*5 1 0-1*2" are five threads on
CPU 0, one on CPU 1 and two on both. The libraries and variables are from the real processes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.inspection.diagnosis import ExpectedBinding, expect_variables, guess_expected, select_variables
from ompbind.inspection.judge import CpusetChange, judge, judge_memory_policy
from ompbind.inspection.verdict import Verdict
from ompbind.machine.read.linux_cgroup import CgroupLimits
from ompbind.openmp.binding import Bind
from ompbind.procfs.process_state import ProcessState, ThreadState
from ompbind.text import Severity

GOMP = "/usr/lib/libgomp.so.1.0.0"
TORCH = "/v/torch/lib/libgomp.so.1"
SKLEARN = "/v/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0"
BLAS = "/v/numpy.libs/libscipy_openblas64_-32a4b2a6.so"
LLVM = "/usr/lib/llvm-14/lib/libomp.so.5"
INTEL = "/v/lib/libiomp5.so"
ONNX = "/v/onnxruntime/capi/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so"
ONE_EACH = {"OMP_PLACES": "{0},{1}", "OMP_PROC_BIND": "close"}
WORKERS = {"OMP_PLACES": "{0,1},{1}", "OMP_PROC_BIND": "close"}
WHOLE = {"OMP_PLACES": "{0,1}", "OMP_PROC_BIND": "true"}
FREE = {"OMP_PROC_BIND": "false"}


def cpus(text):
    return CpuSet.from_list(text)


def process(masks, *libraries, pid=100, parent=1, unreadable=(), name="python", **env):
    items = [item.partition("*") for item in masks.split()]
    each = [mask for mask, _, number in items for _ in range(int(number or 1))]
    made = ThreadState(tid=pid, name=name, cpus=cpus(""), busy_s=1.0)
    threads = (made.replace(tid=pid + i, cpus=cpus(mask)) for i, mask in enumerate(each))
    return ProcessState(
        pid=pid, parent=parent, name=name, threads=tuple(threads), files=libraries,
        variables=tuple(sorted(env.items())), unreadable=unreadable,
    )  # fmt: skip


def plan(bind, text="0-1", rank=0):
    whole = cpus(text)
    singles = [CpuSet((cpu,)) for cpu in whole]
    places = {Bind.RANK: [whole], Bind.THREAD: [whole, *singles[1:]], Bind.EXACT: singles, Bind.NONE: []}
    return ExpectedBinding(rank=rank, cpus=whole, places=tuple(places[bind]), bind=bind)


# masks | libraries | variables | mode and CPUs of the plan | severity and code | part of the text
TABLE = """
0-1*8 | TORCH BLAS | WHOLE | rank 0-1 | ok | all 8 threads are allowed on CPUs 0-1
0-1*8 | TORCH BLAS | |  | ok | all 8 threads are allowed on CPUs 0-1
0-1*2 1 0-1*5 | TORCH BLAS | WORKERS | thread 0-1 | ok | 1 thread bound to places, 7 allowed
0 1 0*5 | TORCH BLAS | ONE_EACH | rank 0-1 | error narrowed | 6 on CPU 0, 1 on CPU 1
0 1 0*5 | TORCH | ONE_EACH | | error stacked | 6 of 7 threads are restricted to CPU 0
0 1 0*5 | TORCH | OMP_PLACES=cores; OMP_PROC_BIND=close | | error stacked | use --bind rank
0 1 0*5 | TORCH | ONE_EACH | exact 0-1 | note crowded | use --bind thread or --bind rank
0*6 | TORCH | ONE_EACH | exact 0-1 | error stacked | no thread is bound to CPU 1
0 1 | GOMP | ONE_EACH | exact 0-1 | ok | 2 threads bound to places of CPUs 0-1
0*7 | BLAS TORCH INTEL | ONE_EACH | exact 0-1 | error stacked | the second of 2 OpenMP runtimes
0-1 1 0-1*5 1*3 | GOMP | WORKERS | thread 0-1 | note crowded | several threads start parallel regions
0 1 0*3 | GOMP | GOMP_CPU_AFFINITY=0 1 | rank 1 | error outside | applies GOMP_CPU_AFFINITY=0 1
0-1*2 | |  | rank 0 | error outside | may run on CPUs 0-1, the rank has CPU 0
0-1*2 | |  | rank 0 | error outside | rebind); 'ompbind run --hold' keeps programs on their CPUs
0*2 | GOMP | GOMP_CPU_AFFINITY=0 1; OMP_PLACES={1}; OMP_PROC_BIND=true | rank 1 | error outside | changed
0 1 | ONNX | | rank 0 | error outside | set SessionOptions.intra_op_num_threads
0-1 1 | ONNX | WHOLE | rank 0-1 | note confined | probably by ONNX Runtime
0 1 0*3 | INTEL | KMP_AFFINITY=norespect,compact | rank 1 | error outside | KMP_AFFINITY=norespect,compact
0*5 | INTEL | KMP_HW_SUBSET=1c; OMP_PROC_BIND=false | none 0-1 | error narrowed | KMP_HW_SUBSET=1c
0 1 | INTEL | KMP_AFFINITY=compact; WHOLE | rank 0-1 | error narrowed | KMP_AFFINITY=compact
0-1*2 | INTEL | KMP_AFFINITY=reset; WHOLE | rank 0-1 | ok | all 2 threads
0 1 0*5 | TORCH BLAS | WHOLE | rank 0-1 | error narrowed | that the program configured after its start
0 0-1*2 0*2 | TORCH | WHOLE | rank 0-1 | note confined | the program configured after its start, set this
0 1 0*5 | TORCH BLAS | |  | error stacked | inherit the place of the initial thread
0*6 | TORCH | WHOLE | rank 0-1 | note confined | the process or its parent set this mask
0-1 0 1 | |  | rank 0-1 | note confined | the program set this itself
0-1 0*2 1 | |  | | note crowded | the program set this itself
0*3 | | UNREADABLE | rank 0-1 | note confined | its environment is not readable
0*3 | TORCH | UNREADABLE | rank 0-1 | note confined | libgomp, the process or its parent set this mask
0*3 | | ONE_EACH | rank 0-1 | error narrowed | an OpenMP runtime bound the initial thread
0*2 | LLVM | GOMP_CPU_AFFINITY=0; WHOLE | rank 0-1 | error narrowed | GOMP_CPU
0 1 2-3 | TORCH | ONE_EACH | rank 0-3 | error narrowed | libgomp bound
"""
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize(("masks", "libraries", "variables", "planned", "found", "words"), ROWS)
def test_processes_of_real_programs(masks, libraries, variables, planned, found, words):
    env, unreadable = {}, ()
    for item in filter(None, variables.split("; ")):
        name, equals, value = item.partition("=")
        if item == "UNREADABLE":
            unreadable = ("environment",)
        else:
            env.update({name: value} if equals else globals()[name])
    observed = process(masks, *(globals()[name] for name in libraries.split()), unreadable=unreadable, **env)
    bind, _, text = planned.partition(" ")
    verdict = judge([observed], plan(Bind(bind), text) if planned else None)
    severity, _, code = found.partition(" ")
    assert (str(verdict.severity), verdict.issues[0].code if code else "") == (severity, code), verdict.text
    assert words in verdict.text


@pytest.mark.parametrize(("masks", "bind", "before", "now", "codes", "text"), [
    ("0*3", Bind.RANK, "0-3", "0", "cpuset", "cpuset of /c has changed from CPUs 0-3 to CPU 0"),
    ("0*3", Bind.RANK, None, "0", "cpuset", "cpuset of /c allows only CPU 0"),
    ("0-3", Bind.RANK, "0-1", "0-3", "cpuset", "may run on CPUs 0-3, the rank has CPUs 0-1: the cpuset"),
    ("0-3", Bind.RANK, None, "0-3", "outside", "rebind), or the cpuset of /c was changed"),
    ("0-2", Bind.RANK, "0-3", "0-3", "outside", "(sched_setaffinity, taskset, rebind)"),
    ("0*3", Bind.RANK, "0-3", "0-1", "confined", "sched_setaffinity"),  # it lost CPUs of other ranks
    ("0*2", Bind.EXACT, "0-1", "0", "cpuset", "are restricted to CPU 0 out of 0-1: the cpuset"),
    ("0 5", Bind.RANK, "0-7", "0,5-7", "cpuset outside", "1 of 2 threads may run on CPU 5"),
    ("0-1", Bind.RANK, "0-3", "0-1", "", "all"),
    ("0", Bind.RANK, "0-3 /a", "0", "cpuset", "moved from the cpuset of /a (CPUs 0-3) to /c (CPU 0)"),
])  # fmt: skip
def test_a_changed_cpuset_is_the_cause_of_the_masks_that_it_explains(masks, bind, before, now, codes, text):
    texts = [each.split() for each in (now, before) if each]
    limits = [CgroupLimits(cpuset=cpus(text), directory="".join(at) or "/c") for text, *at in texts]
    change = CpusetChange(now=limits[0], before=limits[1] if before else None)
    verdict = judge([process(masks)], plan(bind), change)
    assert sorted(issue.code for issue in verdict.issues) == codes.split()
    assert text in verdict.text or not codes


def test_a_core_may_have_a_thread_on_each_of_its_cpus():
    places = (cpus("0-3"), cpus("2-3"))
    cores = ExpectedBinding(rank=0, cpus=cpus("0-3"), places=places, bind=Bind.CORE)
    for workers, is_crowded in ((2, False), (3, True)):
        both = process(f"0-3*4 2-3*{workers + 2}", TORCH, SKLEARN)
        for observed in (process(f"0-3*2 2-3*{workers}", GOMP), both):
            assert [issue.code for issue in judge([observed], cores).issues] == ["crowded"] * is_crowded


def test_children_inherit_what_a_runtime_did_to_their_parent():
    server = process("0 1 0*3", TORCH, **ONE_EACH)
    for env in ({}, ONE_EACH):
        children = [process("0", pid=200 + i, parent=100, name="loader", **env) for i in range(3)]
        verdict = judge([server, *children], plan(Bind.RANK))
        assert [issue.code for issue in verdict.issues] == ["narrowed", "narrowed"]
        assert "5 of 5 threads of python (100)" in verdict.text
        assert "3 of 3 threads of 3 processes" in verdict.text
        assert "inherited from python" in verdict.text
    other = process("1", pid=200, parent=100, name="loader")
    verdict = judge([server, other], plan(Bind.RANK))
    assert [issue.code for issue in verdict.issues] == ["narrowed", "confined"], "another mask is its own"
    shell, child = process("0-1", name="bash"), process("0", pid=200, parent=100, name="sleep")
    verdict = judge([shell, child], plan(Bind.RANK))
    assert (verdict.severity, "sleep (200)" in verdict.text) == (Severity.NOTE, True)


def test_a_nested_run_has_its_own_plan_but_the_first_process_is_judged_with_any_run_id():
    """`ompbind exec` makes its own run from the first process; its children have the same run ID."""
    first = process("0-3", OMPBIND_RUN_ID="inner")
    child = process("4", pid=200, parent=100, OMPBIND_RUN_ID="inner")
    nested = process("5", pid=300, parent=100, OMPBIND_RUN_ID="other")
    expected = plan(Bind.RANK, "0-3").replace(run_id="outer")
    verdict = judge([first, child, nested], expected)
    assert (verdict.processes, verdict.severity) == (2, Severity.ERROR)
    assert judge([first, child, nested], expected.replace(run_id="")).processes == 3


def test_processes_narrowed_to_one_cpu_are_compared_with_their_parents_mask():
    close = {"OMP_PROC_BIND": "close"}
    for env, severity in ((close, "error"), ({**close, "OMP_PLACES": "{0}"}, "ok"), ({}, "ok")):
        alone = process("0*3", TORCH, **env)
        assert judge([alone]).severity is Severity.OK
        assert str(judge([alone], guess_expected([alone], cpus("0-3"))).severity) == severity
        assert guess_expected([process("0 1", TORCH, **env)], cpus("0-3")).cpus == cpus("0-1")


@pytest.mark.parametrize(("planned", "policy", "severity"), [
    ("bind:0-1", "bind:0-1", Severity.OK), ("bind:0-1", None, Severity.OK),
    ("", "interleave:0-1", Severity.OK), ("bind:0-1", "default", Severity.ERROR),
    ("bind:0", "bind:0-1", Severity.ERROR),
])  # fmt: skip
def test_another_memory_policy_than_planned_is_an_error(planned, policy, severity):
    expected = plan(Bind.NONE).replace(memory=planned)
    verdict = judge_memory_policy(Verdict(issues=(), summary="fine"), policy, expected)
    assert verdict.severity is severity
    assert severity is Severity.OK or (planned in verdict.text and policy in verdict.text)


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
    (False, "", "", {"KMP_AFFINITY": "reset,granularity=fine,explicit,proclist=[0,1,2,3]"}, Bind.EXACT),
])  # fmt: skip
def test_the_mode_of_a_rank_follows_from_its_variables(service, places, proc_bind, more, bind):
    own = SERVICE if service else {"OMPBIND_RANK": "0", "OMPBIND_RUN_ID": "job", "OMPBIND_CPUS": "0-3"}
    found = expect_variables({**own, **variables(places, proc_bind), **more})
    assert (found.rank, found.cpus, found.bind, found.run_id) == (0, cpus("0-3"), bind, "job")
    assert str(found.compute) == ("0-1" if service else "0-3")


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
PLANNED = {Bind.RANK: WHOLE, Bind.THREAD: WORKERS, Bind.EXACT: ONE_EACH, Bind.NONE: FREE}
SHELL = process("0-1", name="sh", pid=50)


def rank_plan(bind):
    variables = select_variables({**PLANNED[bind], "OMP_NUM_THREADS": "2"})
    return plan(bind).replace(run_id="job", variables=variables)


def executed(masks, *libraries, env=None, **more):
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
    # fewer threads than a runtime starts, so it has not started them
    (Bind.THREAD, [SHELL, executed("0-1*3", GOMP, env={"OMP_NUM_THREADS": "4"})], "note environment", ""),
    (Bind.EXACT, [SHELL, executed("0-1*3", LLVM, env={"OMP_NUM_THREADS": "1"})], "note environment", ""),
    (Bind.RANK, [executed("0-1", GOMP, env={**WHOLE, "KMP_AFFINITY": "none"})],
     "note environment", "with KMP_AFFINITY=none (planned: unset)"),
])  # fmt: skip
def test_processes_executed_with_other_variables(bind, processes, found, text):
    verdict = judge(processes, rank_plan(bind))
    assert " ".join([str(verdict.severity), *(issue.code for issue in verdict.issues[:1])]) == found
    assert text in verdict.text


@pytest.mark.parametrize(("times", "code"), [
    # (CPU time, run delay) of the initial thread, and of two threads that it has created
    ([(2.0, 1.0), (0.0, 0.0)], "crowded"), ([(2.0, 1.0), (0.09, 0.1)], "crowded"),
    ([(9.0, 5.0), (0.3, 0.3)], "crowded"), ([(0.5, 0.0), (0.5, 0.1)], "crowded"),  # they take turns
    ([(2.0, 1.0), (0.5, 0.5)], "stacked"), ([(0.0, 0.0), (5.0, 5.0)], "stacked"),
    ([(2.0, None), (0.5, None)], "stacked"),
])  # fmt: skip
def test_threads_that_inherit_a_place_are_an_error_if_they_compete_for_its_cpu(times, code):
    made = process("0*3", GOMP, **ONE_EACH)
    pairs = zip(made.threads, [*times, times[-1]], strict=True)
    threads = tuple(thread.replace(busy_s=busy_s, delay_s=delay_s) for thread, (busy_s, delay_s) in pairs)
    (issue,) = judge([made.replace(threads=threads)], plan(Bind.EXACT)).issues
    assert (issue.code, issue.severity is Severity.ERROR) == (code, code == "stacked")


def test_a_list_of_cpus_is_a_binding_too():
    listed = {"KMP_AFFINITY": "granularity=fine,explicit,proclist=[0,1]"}
    expected = plan(Bind.EXACT).replace(run_id="job", variables=select_variables(listed))
    for libraries in ((INTEL,), (INTEL, GOMP)):  # libgomp does not read this variable
        assert judge([process("0-1*2", *libraries, **IDENTITY, **listed)], expected).severity is Severity.OK
    verdict = judge([process("0-1", INTEL, **IDENTITY)], expected)
    assert (verdict.issues[0].code, verdict.severity) == ("environment", Severity.ERROR)


def test_places_that_are_too_long_to_be_written_are_not_missed():
    expected = plan(Bind.EXACT, "0-2000").replace(run_id="job", variables=select_variables(FREE))
    observed = process("0-2000*3", GOMP, **{**IDENTITY, "OMPBIND_CPUS": "0-2000"}, **FREE)
    assert judge([observed], expected).severity is Severity.OK


MASKS = st.lists(st.sets(st.integers(0, 5), min_size=1).map(CpuSet), min_size=1, max_size=12)


@given(MASKS, st.sampled_from([Bind.RANK, Bind.THREAD, Bind.EXACT, Bind.NONE, None]))
def test_every_thread_is_counted_once_and_all_issues_are_reported(masks, bind):
    state = process(" ".join(map(str, masks)), TORCH)
    verdict = judge([state], plan(bind, "0-3") if bind else None)
    whole = cpus("0-3") if bind else guess_expected([state]).cpus
    counted = verdict.outside + verdict.narrowed + verdict.bound + sum(mask == whole for mask in masks)
    assert verdict.threads == counted == len(masks)
    assert (verdict.severity is Severity.OK) <= (verdict.outside == verdict.narrowed == 0)
    assert all(1 <= issue.threads <= len(masks) for issue in verdict.issues)
