"""Which processes belong together, what is expected of them, and what is said of several together."""

from pathlib import Path

import pytest

from ompbind.inspection.rank_processes import Seen, make_inspection
from ompbind.inspection.sampling import Sample, compare_samples
from ompbind.planning.occupancy import LiveRun
from ompbind.planning.rank_variables import SUPERVISOR_NAME
from ompbind.planning.request import Bind
from ompbind.registry.claim_format import make_text, parse_text
from ompbind.report.inspect import NOBODY, render_inspection, render_inspection_json
from ompbind.severity import Severity
from tests.inspection.test_judge import ONE_EACH, TORCH, WHOLE, cpus, process

RANKS = ((0, cpus("0-1")), (1, cpus("2-3")))
RUN = LiveRun(run_id="job", pid=10, uid=1, started=1, ranks=RANKS, held=cpus("0-3"), bind="rank")
FRONT = process("0-3", pid=10, name="ompbind")
OWN = [FRONT, process("0-3", pid=11, parent=10, name=SUPERVISOR_NAME)]


def rank(number, masks, *libraries, pid, parent=11, name="python", **env):
    whole = {0: "0-1", 1: "2-3"}[number]
    told = {"OMPBIND_RUN_ID": "job", "OMPBIND_RANK": str(number), "OMPBIND_CPUS": whole}
    return process(masks, *libraries, pid=pid, parent=parent, name=name, **{**told, **env})


def look_at(*processes, runs=(RUN,), around="0-3"):
    seen = {one.pid: one for one in processes}
    return make_inspection(Seen(processes=seen, runs=runs, around={pid: cpus(around) for pid in seen}))


def members(inspection):
    return [(one.run_id, one.rank, [process.pid for process in one.processes]) for one in inspection.crews]


def test_processes_belong_to_the_rank_that_they_or_their_parents_name():
    found = look_at(
        *OWN,
        rank(1, "2-3", pid=13),
        rank(0, "0-1", pid=12),
        process("0-1", pid=14, parent=12, name="env -i"),  # has lost all variables
        process("0-1", pid=15, parent=14, name="child of it"),
        rank(0, "0-1", pid=16, name="daemon"),  # whose parent is the keeper by now
    )
    assert members(found) == [("job", 0, [12, 16, 14, 15]), ("job", 1, [13])]
    assert found.severity is Severity.OK


def test_two_runs_of_one_name_are_not_mixed():
    other = [
        one.replace(pid=one.pid + 100, parent=one.parent + 100) for one in [*OWN, rank(0, "0-1", pid=12)]
    ]
    found = look_at(*OWN, rank(0, "0-1", pid=12), *other)
    assert members(found) == [("job", 0, [12]), ("job", 0, [112])]


def test_a_run_inside_a_rank_is_judged_by_its_own_plan():
    inner = [
        rank(0, "0-1", pid=20, parent=12, name="ompbind"),
        rank(0, "0-1", pid=21, parent=20, name=SUPERVISOR_NAME),
        process("1", pid=22, parent=21, OMPBIND_RUN_ID="inner", OMPBIND_RANK="1", OMPBIND_CPUS="1"),
    ]
    found = look_at(*OWN, rank(0, "0-1", pid=12), *inner)
    assert members(found) == [("inner", 1, [22]), ("job", 0, [12])]
    assert found.severity is Severity.OK


def test_the_mode_of_the_run_counts_and_not_what_the_command_made_of_its_variables():
    one = rank(0, "0 1 0*3", TORCH, pid=12, **ONE_EACH)
    crew = look_at(*OWN, one).crews[0]
    assert (crew.expected.bind, crew.verdict.issues[0].code) == (Bind.RANK, "narrowed")
    assert "these variables are not of ompbind" in crew.verdict.text
    alone = look_at(*OWN, one, runs=()).crews[0]
    assert (alone.expected.bind, alone.verdict.severity) == (Bind.EXACT, Severity.NOTE)


@pytest.mark.parametrize(("mode", "places"), [("thread", 3), ("exact", 1), ("none", 1), ("odd", 1), ("", 1)])
def test_other_modes_of_runs(mode, places):
    crew = look_at(*OWN, rank(0, "0-1", pid=12, **WHOLE), runs=(RUN.replace(bind=mode),)).crews[0]
    assert len(crew.expected.places) == places
    assert crew.verdict.severity is Severity.OK


def test_one_cpu_is_one_place_in_every_mode():
    told = {"OMP_PLACES": "{0}", "OMP_PROC_BIND": "close", "OMPBIND_CPUS": "0"}
    run = RUN.replace(bind="thread", ranks=((0, cpus("0")),))
    found = look_at(*OWN, rank(0, "0", pid=12, **told), runs=(run,))
    assert "CPU 0, bind thread\n" in render_inspection(found)


def test_ranks_of_others_are_known_by_their_cpus():
    hidden = [
        process("2*2 3", pid=13, parent=11, unread=("libraries", "environment")),
        process("0-1", pid=12, parent=11, unread=("libraries", "environment")),
        process("0", pid=14, parent=12, unread=("libraries", "environment")),
    ]
    found = look_at(*OWN, *hidden)
    assert [(one.run_id, one.rank) for one in found.crews] == [("job", 0), ("job", 1)]
    assert str(found.crews[1].expected.cpus) == "2-3"
    assert "CPUs 2-3, bind rank\n" in render_inspection(found)
    shared = RUN.replace(ranks=((0, cpus("0-3")), (1, cpus("0-3"))))
    assert {one.rank for one in look_at(*OWN, *hidden, runs=(shared,)).crews} == {None}


@pytest.mark.parametrize(
    ("mode", "masks", "title", "severity"),
    [
        ("rank", "0-3*4", "CPUs 0-3, bind rank\n", Severity.OK),
        ("none", "0-3 0*2", "CPUs 0-3, bind none\n", Severity.NOTE),
        ("thread", "0-3 1 2 3", "CPUs 0-3, bind thread, 4 places\n", Severity.OK),
        ("thread", "0-3 1*3", "CPUs 0-3, bind thread, 4 places\n", Severity.ERROR),
        ("core", "0-3*2 2-3", "CPUs 0-3, bind core\n", Severity.OK),
        ("exact", "3 0 1 2", "CPUs 0-3, bind exact, 4 places\n", Severity.OK),
        ("exact", "3*3 0", "CPUs 0-3, bind exact, 4 places\n", Severity.ERROR),
        ("", "0-3*2", "CPUs 0-3, bind none\n", Severity.OK),
    ],
)
def test_ranks_of_others_are_judged_by_the_mode_of_their_run(mode, masks, title, severity):
    run = RUN.replace(bind=mode, ranks=((0, cpus("0-3")),))
    hidden = process(masks, pid=12, parent=11, unread=("libraries", "environment"))
    found = look_at(*OWN, hidden, runs=(run,))
    assert title in render_inspection(found)
    assert found.crews[0].verdict.severity is severity, found.crews[0].verdict.text


def test_ranks_on_cpus_of_others_are_told_together():
    found = look_at(*OWN, rank(0, "0-1", pid=12), rank(1, "0-3", pid=13))
    assert [one.text for one in found.together] == [
        "ranks 0 and 1 may both run on CPUs 0-1, against the plan"
    ]
    partly = look_at(*OWN, rank(0, "0-1", pid=12), rank(1, "0-2", pid=13, OMPBIND_CPUS="1-2"))
    assert [one.text for one in partly.together] == ["ranks 0 and 1 may both run on CPU 0, against the plan"]
    planned = {"OMPBIND_CPUS": "0-3"}
    shared = look_at(*OWN, rank(0, "0-3", pid=12, **planned), rank(1, "0-3", pid=13, **planned))
    assert (shared.together, shared.severity) == ((), Severity.OK)


def test_processes_that_a_runtime_put_on_one_cpu():
    alone = [process("0", TORCH, pid=pid, OMP_PROC_BIND="close") for pid in (50, 51)]
    found = look_at(*alone)
    assert (found.severity, found.together[0].code) == (Severity.ERROR, "shared")
    assert "2 processes may run on CPU 0 alone: python (50), python (51)" in found.together[0].text
    confined = look_at(*(process("0", pid=pid) for pid in range(50, 60)))
    assert (confined.severity, confined.together[0].severity) == (Severity.NOTE, Severity.NOTE)
    assert "and 6 more" in confined.together[0].text
    assert look_at(*alone, around="0").together == ()
    assert look_at(*(one.replace(kernel=True, variables=()) for one in alone)).together == ()


def test_a_crowd_fits_a_screen_and_is_told_shortly():
    children = [process("0-1", pid=100 + i, parent=12, name="loader") for i in range(40)]
    text = render_inspection(look_at(*OWN, rank(0, "0-1*30", TORCH, pid=12, **WHOLE), *children))
    assert "pid 100 and 39 more like it" in text
    assert len(text.splitlines()) < 15
    assert max(map(len, text.splitlines())) <= 80


def test_names_move_no_terminal_and_nobody_is_told():
    evil = process("0-1", pid=5, name="a\x1b[2Jb").replace(
        command=("\x1b]0;x\x07", "b"), unread=("environment",)
    )
    text = render_inspection(look_at(evil))
    assert "\x1b" not in text
    assert "environment: may not be read" in text
    assert render_inspection(look_at()) == NOBODY
    assert '"crews": []' in render_inspection_json(look_at())


def test_live_runs_tell_their_mode_and_older_ones_do_not():
    assert parse_text(make_text(RUN), 1) == RUN
    older = make_text(RUN).replace("bind rank\n", "")
    assert parse_text(older, 1) == RUN.replace(bind="")


def test_two_looks_tell_who_was_busy_and_who_moved():
    def at(at_s, busy_s, cpu, migrations):
        state = process("0-1*2", pid=5)
        idle, busy = state.threads
        threads = (idle.replace(busy_s=0.0, cpu=1), busy.replace(busy_s=busy_s, cpu=cpu))
        state = state.replace(threads=threads)
        times = ((0, busy_s, at_s), (1, 0.0, at_s))
        return Sample(at_s=at_s, inspection=look_at(state, around=""), cpus=times, migrations=migrations)

    delta = compare_samples(at(10.0, 1.0, 0, ()), at(12.0, 2.5, 1, ()))
    assert [(one.cpu, one.share) for one in delta.cpus] == [(0, 0.75), (1, 0.0)]
    assert [(one.thread.tid, one.share, one.migrations_per_s) for one in delta.threads] == [
        (6, 0.75, 0.5),
        (5, 0.0, 0.0),
    ]
    assert (delta.crews[0].share, delta.crews[0].migrations_per_s) == (0.75, 0.5)
    counted = compare_samples(at(10.0, 1.0, 0, ((6, 7),)), at(12.0, 1.0, 0, ((6, 17),)))
    assert [one.migrations_per_s for one in counted.threads] == [5.0, 0.0]
    both = compare_samples(at(10.0, 1.0, 0, ((5, 1), (6, 1))), at(12.0, 2.0, 0, ((5, 9), (6, 1))))
    assert [(one.thread.tid, one.migrations_per_s) for one in both.threads] == [(6, 0.0), (5, 4.0)]


def test_the_page_shows_what_is_printed():
    env = {"OMP_NUM_THREADS": "4", "OMP_PLACES": "cores", "OMP_PROC_BIND": "close"}
    told = {"OMPBIND_RUN_ID": "20261120-101502-30117", "OMPBIND_RANK": "0", "OMPBIND_CPUS": "0-3"}
    blas = "/v/site-packages/numpy.libs/libscipy_openblas64_-32a4b2a6.so"
    server = process(
        "0*37 1 2 3", "/v/site-packages/torch/lib/libgomp.so.1", blas, pid=30121, parent=11, **env, **told
    )
    busy = {"0": 112.4 / 37, "1": 31.0, "2": 30.8, "3": 30.9}
    threads = [
        one.replace(busy_s=busy[str(one.cpus)], cpu=one.cpus.first, policy="other", state="S")
        for one in server.threads
    ]
    threads[0] = threads[0].replace(state="R")
    server = server.replace(threads=tuple(threads), command=("python", "serve.py"))
    run = RUN.replace(run_id=told["OMPBIND_RUN_ID"], ranks=((0, cpus("0-3")),))
    page = (Path(__file__).parents[2] / "docs/inspecting.md").read_text()
    session = page.split("```console\n$ ompbind inspect 30117\n")[1].split("\n```")[0]
    assert render_inspection(look_at(*OWN, server, runs=(run,))) == session


def test_values_of_variables_are_told_as_they_are():
    value = "granularity=fine,explicit,proclist=[0,1,2,3,4,5,6,7,8,9,10,11,12]"
    told = rank(0, "0*4", "libiomp5.so", pid=12, KMP_AFFINITY=value)
    text = render_inspection(look_at(*OWN, told))
    assert max(map(len, text.splitlines())) <= 80
    assert "".join(line.strip() for line in text.splitlines()).count(f"KMP_AFFINITY={value}") == 2
