"""The command and the environment of each rank, and which values in them are secret."""

import pytest

from ompbind.commands import rank_command
from ompbind.commands.environment import RunSpec, find_changed, make_identities
from ompbind.commands.rank_command import make_command
from ompbind.commands.rank_variables import find_attempt, find_rank
from ompbind.cpuset import CpuSet
from ompbind.masks.mask import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine

DUAL = make_machine(Shape(packages=2, cores=4, smt=2))


def commands(base=None, request=None, machine=DUAL, **spec):
    plan = make_plan(machine, request or Request(ranks=2, reserve=1))
    made = RunSpec(**{"argv": ("app", "-x"), "run_id": "r1", "base": base or {}, **spec})
    return [make_command(plan, identity, made) for identity in make_identities(len(plan.placements))]


def test_the_attempt_of_an_environment():
    found = [find_attempt({"OMPBIND_ATTEMPT": value}) for value in ("3", "", "-2", "x")]
    assert (found, find_attempt({})) == ([3, 1, 1, 1], 1)


def test_ranks_start_on_their_first_cpu_if_the_kernel_does_not_move_them():
    isolated = DUAL.replace(isolated=CpuSet.from_list("0-3"))
    assert [command.first for command in commands(request=Request(ranks=2))] == [None, None]
    for mask, firsts in (("3,2|4-5", [3, None]), ("0|1", [None, None])):
        request = Request(ranks=2, mask=parse_mask(mask))
        assert [command.first for command in commands(request=request, machine=isolated)] == firsts


@pytest.mark.parametrize(("rank", "of_run", "run_id", "found"), [
    (None, None, None, None), ("3", None, None, 3), ("3", None, "r1", None), ("3", "r1", "r1", 3),
    ("3", "r2", "r1", None), ("-1", "r1", "r1", None), ("\u00b2", "r1", "r1", None),
    ("9" * 4500, "r1", "r1", None), (str(1 << 40), None, None, None),
])  # fmt: skip
def test_the_rank_of_an_environment(rank, of_run, run_id, found):
    env = {"OMPBIND_RANK": rank, "OMPBIND_RUN_ID": of_run}
    assert find_rank({name: value for name, value in env.items() if value is not None}, run_id) == found


@pytest.mark.parametrize(("kept", "others"), [
    ({"OMP_NUM_THREADS": "9", "KMP_AFFINITY": "none"}, {"OMP_PLACES": "{4,5,6}", "OMP_PROC_BIND": "true"}),
    ({"OMP_PLACES": "{0}"}, {}), ({"OMP_PROC_BIND": "false"}, {}),  # the two are kept or set together
])  # fmt: skip
def test_keep_env_keeps_inherited_variables_and_adds_the_others(kept, others):
    env = commands(kept, keep_env=True)[1].env
    names = ("OMP_NUM_THREADS", "KMP_AFFINITY") if others else ()
    names = (*names, "OMP_PLACES", "OMP_PROC_BIND", "OMPBIND_RANK")
    assert {name: env[name] for name in names if name in env} == {**kept, **others, "OMPBIND_RANK": "1"}


@pytest.mark.parametrize(("path", "added", "expected"), [
    (None, (), "/f"), (":/a", (), "/f::/a"), ("/a:/f", (), "/f:/a"), ("/a", ("",), "/f"),
    ("/a", ("/x{rank}", "/c{rank}"), "/f:/c1"),
])  # fmt: skip
@pytest.mark.parametrize("keep", [False, True])
def test_freezing_puts_its_directory_first_in_pythonpath(path, added, expected, keep):
    base = {} if path is None else {"PYTHONPATH": path}
    added = tuple(("PYTHONPATH", value) for value in added)
    frozen = commands(base, added_variables=added, keep_env=keep, freeze_directory="/f")[1]
    assert frozen.env["PYTHONPATH"] == expected
    assert commands(base, keep_env=keep)[1].env.get("PYTHONPATH") == path


def test_before_the_plan_all_is_filled_that_does_not_depend_on_it():
    spec = RunSpec(argv=("a-{rank}", "{size}{cpus}{threads}"), fill_argv=True, wrap=("w-{local_rank}",),
                   chdir="{run_id}", run_id="r", base={})  # fmt: skip
    known = rank_command.make_spec_before_plan(spec, rank=5, local_rank=1)
    assert (known.argv, known.wrap, known.chdir) == (("a-5", "{size}{cpus}{threads}"), ("w-1",), "r")
    assert rank_command.make_spec_before_plan(spec).wrap == ("w-0",)


def test_variables_of_an_outer_run_are_not_reported_as_changed():
    plan, spec = make_plan(DUAL, Request()), RunSpec(argv=("a",), run_id="r", base={"OMP_PLACES": "{7}"})
    assert find_changed(plan, spec) == {"OMP_PLACES": "{0,1,2,3,4,5,6,7}"}
    assert not find_changed(plan, spec.replace(base={**spec.base, "OMPBIND_RANK": "0"}))
    assert not find_changed(plan, spec.replace(keep_env=True))
