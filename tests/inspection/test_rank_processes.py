"""Groups of processes, what is expected of each, and issues shared by several."""

import json

import pytest

from ompbind.cli.inspect import NO_PROCESSES, render_inspection, render_inspection_json
from ompbind.commands.rank_variables import SUPERVISOR_NAME
from ompbind.inspection.rank_processes import MaskOrigin, ObservedProcesses, make_inspection
from ompbind.openmp.binding import Bind
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.request import Hold
from ompbind.text import Severity
from tests.inspection.test_judge import FREE, GOMP, ONE_EACH, TORCH, cpus, process

RANKS = ((0, cpus("0-1")), (1, cpus("2-3")))
RUN = LiveRun(run_id="job", pid=10, uid=1, started=1, ranks=RANKS, claimed=cpus("0-3"), bind="rank")
HIDDEN = ("libraries", "environment")
OWN = [process("0-3", pid=10, name="ompbind"), process("0-3", pid=11, parent=10, name=SUPERVISOR_NAME)]


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


@pytest.mark.parametrize("hold", [None, *Hold])
def test_ranks_are_held_as_their_run_is(hold):
    runs = (RUN.replace(hold=hold),)
    (hidden,) = inspect(*OWN, process("0-1", pid=12, parent=11, unreadable=HIDDEN), runs=runs).groups
    assert (hidden.rank, hidden.expected.hold) == (0, hold)
    (group,) = (found := inspect(*OWN, rank(0, "0-2", pid=12), runs=runs)).groups
    text = " ".join(render_inspection(found).split())
    (record,) = json.loads(render_inspection_json(found))["crews"]
    assert (group.rank, group.expected.hold, record["planned"]["hold"]) == (0, hold, hold)
    assert ("held on its CPUs (--hold" in text, "(--hold=fixed)" in text) == (bool(hold), hold is Hold.FIXED)
    assert ("a process outside of the run" in text, "'ompbind run --hold'" in text) == (bool(hold), not hold)


def test_processes_belong_to_the_rank_in_their_environment_or_their_parents():
    found = inspect(
        *OWN, rank(1, "2-3", pid=13), rank(0, "0-1", pid=12),
        process("0-1", pid=14, parent=12, name="env -i"),  # without variables
        process("0-1", pid=15, parent=14, name="its child"),
        rank(0, "0-1", pid=16, name="daemon"),  # adopted by the supervisor
    )  # fmt: skip
    assert members(found) == [("job", 0, [12, 16, 14, 15]), ("job", 1, [13])]
    assert found.severity is Severity.OK


def test_two_runs_of_one_name_are_not_mixed():
    both = [*OWN, rank(0, "0-1", pid=12)]
    other = [each.replace(pid=each.pid + 100, parent=each.parent + 100) for each in both]
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
    rows = (("2*2 3", 13, 11), ("0-1", 12, 11), ("0", 14, 12))
    hidden = [process(masks, pid=pid, parent=parent, unreadable=HIDDEN) for masks, pid, parent in rows]
    found = inspect(*OWN, *hidden)
    assert [(group.run_id, group.rank) for group in found.groups] == [("job", 0), ("job", 1)]
    assert str(found.groups[1].expected.cpus) == "2-3"
    assert "CPUs 2-3, --bind rank\n" in render_inspection(found)
    shared = RUN.replace(ranks=((0, cpus("0-3")), (1, cpus("0-3"))))
    assert {group.rank for group in inspect(*OWN, *hidden, runs=(shared,)).groups} == {None}


@pytest.mark.parametrize(("mode", "env", "code"), [
    *((mode, env, "unbound") for mode in ("thread", "core", "exact") for env in ({}, FREE)),
    *((mode, env, code) for mode in ("rank", "none") for env, code in (({}, "environment"), (FREE, ""))),
])  # fmt: skip  # in modes without places, ompbind may have set OMP_PROC_BIND=false
def test_inspect_finds_removed_variables_by_the_mode_of_the_run(mode, env, code):
    runs = (RUN.replace(bind=mode),)
    group = inspect(*OWN, rank(0, "0-1*2", GOMP, pid=12, **env), runs=runs).groups[0]
    assert [issue.code for issue in group.verdict.issues] == ([code] if code else [])
    assert group.expected.bind == mode or mode in ("rank", "none")


@pytest.mark.parametrize(("mode", "masks", "severity"), [
    ("rank", "0-3*4", "ok"), ("none", "0-3 0*2", "note"), ("thread", "0-3 1 2 3", "ok"),
    ("thread", "0-3 1*3", "error"), ("core", "0-3*2 2-3", "ok"), ("exact", "3 0 1 2", "ok"),
    ("exact", "3*3 0", "error"), ("", "0-3*2", "ok"),
])  # fmt: skip
def test_ranks_of_other_users_are_compared_with_the_mode_of_their_run(mode, masks, severity):
    run = RUN.replace(bind=mode, ranks=((0, cpus("0-3")),))
    hidden = process(masks, pid=12, parent=11, unreadable=HIDDEN)
    (group,) = inspect(*OWN, hidden, runs=(run,)).groups
    assert (str(group.verdict.severity), str(group.expected.cpus)) == (severity, "0-3"), group.verdict.text


@pytest.mark.parametrize(("mode", "allowed", "is_unbound"), [
    ("none", "0-1", True), ("none", "0-3", False), ("rank", "0-1", False),
])  # fmt: skip
def test_no_cpus_belong_to_a_rank_without_a_mode_that_has_all(mode, allowed, is_unbound):
    found = inspect(*OWN, rank(0, "0-1", pid=12), runs=(RUN.replace(bind=mode),), parent_mask=allowed)
    assert found.groups[0].expected.is_unbound == is_unbound


def test_ranks_allowed_on_cpus_of_other_ranks_are_a_shared_issue():
    planned = ("0-1 0-2", {}, "CPUs 0-1"), ("0-3 0-3", {"OMPBIND_CPUS": "0-3"}, "")
    for masks, env, both in (*planned, ("0-2 0-2", {"OMPBIND_CPUS": "0-1"}, "CPU 2")):
        found = inspect(*OWN, *(rank(i, mask, pid=12 + i, **env) for i, mask in enumerate(masks.split())))
        text = f"ranks 0 and 1 are both allowed on {both}, contrary to the plan"
        assert [issue.text for issue in found.shared_issues] == [text] * bool(both)
        assert (found.severity is Severity.OK) == (not both)


def test_names_are_cleaned_for_terminals_and_an_empty_inspection_is_rendered():
    evil = process("0-1", pid=5, name="a\x1b[2Jb", unreadable=("environment",))
    evil = evil.replace(command=("\x1b]0;x\x07", "b"))
    text = render_inspection(inspect(evil))
    assert "\x1b" not in text
    assert "environment: not readable" in text
    assert render_inspection(inspect()) == NO_PROCESSES
    assert '"crews": []' in render_inspection_json(inspect())


def test_the_state_is_ok_only_if_all_was_read():
    good, bad = inspect(*OWN, rank(0, "0-1", pid=12)), inspect(*OWN, rank(0, "0-2", pid=12))
    unseen = {"unseen": (("process 5", "it has exited"),)}
    states = [each.state for each in (good, bad, inspect(), good.replace(**unseen), bad.replace(**unseen))]
    assert states == ["ok", "error", "not seen", "not seen", "error"]
    text = render_inspection(good.replace(**unseen), problems=True)
    assert text.splitlines()[0] == "not seen: process 5: it has exited"
    record = render_inspection_json(good, problems=True)
    assert ('"state": "ok"' in record, '"crews": []' in record) == (True, True), "what is not shown was seen"
