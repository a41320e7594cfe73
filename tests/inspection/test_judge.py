"""Verdicts on threads: a table of processes of real programs, each with the plans that it may have had.

A process is written as the masks of its threads, initial thread first: "0*5 1 0-1*2" are five threads on
CPU 0, one on CPU 1 and two on both. The libraries and variables are from the real processes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.inspection.diagnosis import ExpectedBinding, guess_expected
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


def cpus(text):
    return CpuSet.from_list(text)


def process(masks, *libraries, pid=100, parent=1, unreadable=(), name="python", **env):
    items = [item.partition("*") for item in masks.split()]
    each = [mask for mask, _, number in items for _ in range(int(number or 1))]
    threads = (ThreadState(tid=pid + i, name=name, cpus=cpus(mask)) for i, mask in enumerate(each))
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
0*2 | GOMP | GOMP_CPU_AFFINITY=0 1; OMP_PLACES={1}; OMP_PROC_BIND=true | rank 1 | error outside | changed
0 1 | ONNX | | rank 0 | error outside | set SessionOptions.intra_op_num_threads
0-1 1 | ONNX | WHOLE | rank 0-1 | note confined | probably by ONNX Runtime
0 1 0*3 | INTEL | KMP_AFFINITY=norespect,compact | rank 1 | error outside | KMP_AFFINITY=norespect,compact
0*5 | INTEL | KMP_HW_SUBSET=1c; OMP_PROC_BIND=false | none 0-1 | error narrowed | KMP_HW_SUBSET=1c
0 1 | INTEL | KMP_AFFINITY=compact; WHOLE | rank 0-1 | error narrowed | KMP_AFFINITY=compact
0-1*2 | INTEL | KMP_AFFINITY=reset; WHOLE | rank 0-1 | ok | all 2 threads
0 1 0*5 | TORCH BLAS | WHOLE | rank 0-1 | error narrowed | that the program configured after its start
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
    ("0-3", Bind.RANK, None, "0-3", "outside", "taskset), or the cpuset of /c was changed"),
    ("0-2", Bind.RANK, "0-3", "0-3", "outside", "(sched_setaffinity, taskset)"),
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
