"""Groups of processes, what is expected of each, and issues shared by several."""

import pytest

from ompbind.inspection.load import MaskOrigin
from ompbind.inspection.rank_processes import ObservedProcesses, make_inspection
from ompbind.inspection.samples import Sample, compare_samples, find_absent_ranks
from ompbind.machine.sources.linux.cgroup import Throttling
from ompbind.openmp.binding import Bind
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.rank_variables import SUPERVISOR_NAME
from ompbind.procfs.parsers import CpuTimes
from ompbind.report.inspect import NO_PROCESSES, render_inspection, render_inspection_json
from ompbind.report.text import Screen
from ompbind.text import Severity
from tests.inspection.test_judge import ONE_EACH, TORCH, WHOLE, cpus, process

RANKS = ((0, cpus("0-1")), (1, cpus("2-3")))
RUN = LiveRun(run_id="job", pid=10, uid=1, started=1, ranks=RANKS, claimed=cpus("0-3"), bind="rank")
FOREGROUND = process("0-3", pid=10, name="ompbind")
OWN = [FOREGROUND, process("0-3", pid=11, parent=10, name=SUPERVISOR_NAME)]


def rank(number, masks, *libraries, pid, parent=11, name="python", **env):
    whole = {0: "0-1", 1: "2-3"}[number]
    variables = {"OMPBIND_RUN_ID": "job", "OMPBIND_RANK": str(number), "OMPBIND_CPUS": whole}
    return process(masks, *libraries, pid=pid, parent=parent, name=name, **{**variables, **env})


def inspect(*processes, runs=(RUN,), parent_mask="0-3"):
    by_pid = {process.pid: process for process in processes}
    origins = {pid: MaskOrigin(process=by_pid[pid], allowed=cpus(parent_mask)) for pid in by_pid}
    return make_inspection(ObservedProcesses(processes=by_pid, runs=runs, origins=origins))


def members(inspection):
    groups = inspection.groups
    return [(group.run_id, group.rank, [process.pid for process in group.processes]) for group in groups]


def test_processes_belong_to_the_rank_in_their_environment_or_their_parents():
    found = inspect(
        *OWN,
        rank(1, "2-3", pid=13),
        rank(0, "0-1", pid=12),
        process("0-1", pid=14, parent=12, name="env -i"),  # without variables
        process("0-1", pid=15, parent=14, name="its child"),
        rank(0, "0-1", pid=16, name="daemon"),  # adopted by the supervisor
    )
    assert members(found) == [("job", 0, [12, 16, 14, 15]), ("job", 1, [13])]
    assert found.severity is Severity.OK


def test_two_runs_of_one_name_are_not_mixed():
    other = [
        process.replace(pid=process.pid + 100, parent=process.parent + 100)
        for process in [*OWN, rank(0, "0-1", pid=12)]
    ]
    found = inspect(*OWN, rank(0, "0-1", pid=12), *other)
    assert members(found) == [("job", 0, [12]), ("job", 0, [112])]


def test_a_nested_run_is_compared_with_its_own_plan():
    inner = [
        rank(0, "0-1", pid=20, parent=12, name="ompbind"),
        rank(0, "0-1", pid=21, parent=20, name=SUPERVISOR_NAME),
        process("1", pid=22, parent=21, OMPBIND_RUN_ID="inner", OMPBIND_RANK="1", OMPBIND_CPUS="1"),
    ]
    found = inspect(*OWN, rank(0, "0-1", pid=12), *inner)
    assert members(found) == [("inner", 1, [22]), ("job", 0, [12])]
    assert found.severity is Severity.OK


def test_the_mode_of_the_run_has_precedence_over_variables_that_the_command_changed():
    changed = rank(0, "0 1 0*3", TORCH, pid=12, **ONE_EACH)
    group = inspect(*OWN, changed).groups[0]
    assert (group.expected.bind, group.verdict.issues[0].code) == (Bind.RANK, "narrowed")
    assert "ompbind did not set these variables, they come from the command" in group.verdict.text
    alone = inspect(*OWN, changed, runs=()).groups[0]
    assert (alone.expected.bind, alone.verdict.severity) == (Bind.EXACT, Severity.NOTE)
    removed = rank(0, "0 1 0*3", TORCH, pid=12, OMP_PROC_BIND="true")
    assert "the command removed OMP_PLACES" in inspect(*OWN, removed).groups[0].verdict.text


def test_ranks_of_other_users_are_found_by_their_cpus():
    hidden = [
        process("2*2 3", pid=13, parent=11, unreadable=("libraries", "environment")),
        process("0-1", pid=12, parent=11, unreadable=("libraries", "environment")),
        process("0", pid=14, parent=12, unreadable=("libraries", "environment")),
    ]
    found = inspect(*OWN, *hidden)
    assert [(group.run_id, group.rank) for group in found.groups] == [("job", 0), ("job", 1)]
    assert str(found.groups[1].expected.cpus) == "2-3"
    assert "CPUs 2-3, --bind rank\n" in render_inspection(found)
    shared = RUN.replace(ranks=((0, cpus("0-3")), (1, cpus("0-3"))))
    assert {group.rank for group in inspect(*OWN, *hidden, runs=(shared,)).groups} == {None}


@pytest.mark.parametrize(
    ("mode", "masks", "severity"),
    [("rank", "0-3*4", "ok"), ("none", "0-3 0*2", "note"), ("thread", "0-3 1 2 3", "ok"),
     ("thread", "0-3 1*3", "error"), ("core", "0-3*2 2-3", "ok"), ("exact", "3 0 1 2", "ok"),
     ("exact", "3*3 0", "error"), ("", "0-3*2", "ok")],
)  # fmt: skip
def test_ranks_of_other_users_are_compared_with_the_mode_of_their_run(mode, masks, severity):
    run = RUN.replace(bind=mode, ranks=((0, cpus("0-3")),))
    hidden = process(masks, pid=12, parent=11, unreadable=("libraries", "environment"))
    (group,) = inspect(*OWN, hidden, runs=(run,)).groups
    assert (str(group.verdict.severity), str(group.expected.cpus)) == (severity, "0-3"), group.verdict.text


def test_ranks_allowed_on_cpus_of_other_ranks_are_a_shared_issue():
    planned = {"OMPBIND_CPUS": "0-3"}
    for masks, more, texts in (
        (("0-1", "0-3"), {}, ["ranks 0 and 1 are both allowed on CPUs 0-1, contrary to the plan"]),
        (("0-1", "0-2"), {}, ["ranks 0 and 1 are both allowed on CPUs 0-1, contrary to the plan"]),
        (("0-3", "0-3"), planned, []),
    ):
        found = inspect(*OWN, *(rank(i, mask, pid=12 + i, **more) for i, mask in enumerate(masks)))
        assert [issue.text for issue in found.shared_issues] == texts
        assert (found.severity is Severity.OK) == (not texts)


def test_a_large_tree_starts_with_the_summary_and_problems_hides_the_rest():
    """A program without a plan, with 60 helpers; one of them is pinned to a CPU."""
    helpers = [process("0-3", pid=100 + i, parent=50, name="helper") for i in range(60)]
    pinned = process("0-3 0*2", pid=200, parent=50, name="pinned")
    found = inspect(process("0-3", pid=50), *helpers, pinned, rank(1, "1", pid=12), *OWN)
    for width in (60, 80, 160):
        screen = Screen(width=width)
        lines = render_inspection(found, screen=screen).splitlines()
        assert lines[0] == "1 rank and 62 processes with 65 threads: 1 error, 1 note"
        shown = render_inspection(found, problems=True, screen=screen).splitlines()
        assert shown[0] == lines[0]
        titles = [line.split(":")[0] for line in shown if line.startswith(("rank", "process"))]
        assert titles == ["rank 1 of run job", "process 200"]
        assert max(map(len, shown)) <= width
    loaders = [process("0-1", pid=100 + i, parent=12, name="loader") for i in range(40)]
    text = render_inspection(inspect(*OWN, rank(0, "0-1*30", TORCH, pid=12, **WHOLE), *loaders))
    assert "pid 100 and 39 similar" in text
    assert len(text.splitlines()) < 15


def test_names_are_cleaned_for_terminals_and_an_empty_inspection_is_rendered():
    evil = process("0-1", pid=5, name="a\x1b[2Jb").replace(
        command=("\x1b]0;x\x07", "b"), unreadable=("environment",)
    )
    text = render_inspection(inspect(evil))
    assert "\x1b" not in text
    assert "environment: not readable" in text
    assert render_inspection(inspect()) == NO_PROCESSES
    assert '"crews": []' in render_inspection_json(inspect())


def test_two_samples_show_cpu_use_and_migrations():
    def at(at_s, busy_s, cpu, migrations):
        state = process("0-1*2", pid=5)
        idle, busy = state.threads
        threads = (idle.replace(busy_s=0.0, cpu=1), busy.replace(busy_s=busy_s, cpu=cpu))
        state = state.replace(threads=threads)
        times = {
            cpu: CpuTimes(processes=0, busy=int(100 * busy), stolen=0, total=int(100 * at_s))
            for cpu, busy in enumerate((busy_s, 0))
        }
        return Sample(at_s=at_s, inspection=inspect(state, parent_mask=""), cpus=times, migrations=migrations)

    def rates(delta):
        return [(use.thread.tid, use.migrations_per_s) for use in delta.threads]

    delta = compare_samples(at(10.0, 1.0, 0, ()), at(12.0, 2.5, 1, ()))
    assert [(use.cpu, use.share) for use in delta.cpus] == [(0, 0.75), (1, 0.0)]
    assert (rates(delta), [use.share for use in delta.threads]) == ([(6, 0.5), (5, 0.0)], [0.75, 0.0])
    assert (delta.groups[0].share, delta.groups[0].migrations_per_s) == (0.75, 0.5)
    both = compare_samples(at(10.0, 1.0, 0, ((5, 1), (6, 1))), at(12.0, 2.0, 0, ((5, 9), (6, 1))))
    assert rates(both) == [(6, 0.0), (5, 4.0)], "a counted number of migrations is used"


def test_two_samples_show_waiting_memory_and_throttling():
    def at(at_s, delay_s, periods):
        state = process("0-1*2", pid=5).replace(resident_bytes=4096)
        first, second = state.threads
        state = state.replace(threads=(first.replace(delay_s=delay_s), second.replace(delay_s=1.0)))
        inspection = inspect(state, process("0", pid=8), parent_mask="")
        throttlings = (Throttling(cgroup="a", periods=periods), Throttling(cgroup=str(at_s)))
        return Sample(at_s=at_s, inspection=inspection, throttlings=throttlings)

    delta = compare_samples(at(10.0, 1.0, 5), at(12.0, 1.5, 25))
    assert [use.delay_share for use in delta.groups] == [0.25, None]
    assert [use.resident_bytes for use in delta.groups] == [4096, 0]
    assert delta.throttlings == (Throttling(cgroup="a", periods=20),)


@pytest.mark.parametrize(
    ("states", "busy_s", "delay_s", "share"),
    [("SR", 0.0, 0.25, 0.25), ("RR", 0.5, 3.63, 0.5), ("RR", 0.0, 3.63, 1.0), ("RR", 0.0, 0.0, 1.0),
     ("SR", 0.0, 0.0, 0.0), ("RS", 0.0, 0.0, 0.0), ("RR", 1.0, 0.0, 0.0), ("RR", 1.1, 0.2, 0.0)],
)  # fmt: skip
def test_a_thread_waits_at_most_all_the_time(states, busy_s, delay_s, share):
    """The kernel counts a wait when it ends: 3.63 s in a second began before that second."""
    samples = []
    for at_s, state in enumerate(states):
        (thread,) = (found := process("0", pid=5)).threads
        thread = thread.replace(state=state, busy_s=busy_s * at_s, delay_s=delay_s * at_s)
        inspection = inspect(found.replace(threads=(thread,)), parent_mask="")
        samples.append(Sample(at_s=float(at_s), inspection=inspection))
    assert compare_samples(*samples).threads[0].delay_share == share


@pytest.mark.parametrize(
    ("processes", "absent"),
    [((), [0, 1]), ((rank(1, "2-3", pid=13),), [0]),
     ((process("0-3", pid=14, parent=11),), []),  # its rank is unknown
     ((process("0-3", pid=14, parent=1),), [0, 1])],
)  # fmt: skip
def test_ranks_without_processes_are_found(processes, absent):
    found = find_absent_ranks([RUN], inspect(*OWN, *processes))
    assert list(found) == [("job", rank) for rank in absent]
