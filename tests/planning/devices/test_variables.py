"""The variables that give ranks their devices: narrowed for each vendor, in the format of each library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.commands.environment import RunSpec, make_local_identities, make_variables
from ompbind.commands.rank_command import make_unbound_commands
from ompbind.planning.devices.visible import VENDOR_VARIABLES, find_visible_devices
from ompbind.planning.notes import explain
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine
from tests.planning.devices.gpus import (
    ROCM_UUIDS,
    UUIDS,
    make_amd_gpus,
    make_gpu,
    make_intel_gpus,
    make_nic,
    make_nvidia_gpus,
)
from tests.planning.devices.test_visible import CUDA, ENVIRONMENTS, HIP, MIXED, ROCR, ZE

MACHINE = make_machine(Shape(packages=4, cores=4))
OWN = {"OMPBIND_RANK_DEVICES", "OMPBIND_NICS"}


def planned(devices, given, env, **options):
    """A plan for as many ranks as there are groups of devices in `given`."""
    visible = find_visible_devices(devices, env)
    kinds = tuple(dict.fromkeys(device.kind for group in given for device in group))
    request = Request(ranks=len(given), visible=visible, **options)
    plan = make_plan(MACHINE.replace(devices=tuple(devices)), request)
    pairs = zip(plan.placements, given, strict=True)
    placements = tuple(placement.replace(devices=tuple(group)) for placement, group in pairs)
    return plan.replace(placements=placements, request=request.replace(devices=kinds))


def variables(devices, given, env=(), *, keep_env=False, added=(), **options):
    """The variables for devices of each rank."""
    plan = planned(devices, given, dict(env), **options)
    spec = RunSpec(argv=(), run_id="run", base=dict(env), keep_env=keep_env, added_variables=added)
    made = [make_variables(plan, identity, spec) for identity in make_local_identities(plan)]
    names = (*VENDOR_VARIABLES, *OWN)
    return [{name: own[name] for name in names if name in own} for own in made]


def one_each(devices):
    return [[device] for device in devices]


@pytest.mark.parametrize(("gpus", "env", "name", "expected"), [
    (make_nvidia_gpus(2), {}, CUDA, UUIDS[:2]), (make_amd_gpus(2), {ROCR: "1,0"}, ROCR, ROCM_UUIDS[:2]),
    (make_nvidia_gpus(2, with_uuids=False), {CUDA: "1,0"}, CUDA, ("0", "1")),
    (make_amd_gpus(2), {ROCR: "1,0", HIP: "0,1"}, HIP, ("1", "0")),
    (make_amd_gpus(2), {CUDA: "1,0"}, CUDA, ("0", "1")),
    (make_intel_gpus(2), {ZE: "0.0,1.0,1.1"}, ZE, ("0.0", "1.0,1.1")),
])  # fmt: skip
def test_gpus_are_given_by_uuids_or_by_the_last_variable_that_counts(gpus, env, name, expected):
    made = variables(gpus, one_each(gpus), env)
    assert tuple(own[name] for own in made) == expected
    assert [own["OMPBIND_RANK_DEVICES"] for own in made] == ["gpu:0", "gpu:1"]
    assert all(own.keys() == {name, *OWN} for own in made)


def test_a_rank_with_a_gpu_of_one_vendor_sees_none_of_another_and_hip_finds_its_own_beside_nvidias():
    gpus = (make_gpu(0, uuid=UUIDS[0]), *(gpu.replace(index=gpu.index + 1) for gpu in make_amd_gpus(2)))
    first, second = variables(gpus, one_each(gpus[:2]))
    assert (first[CUDA], first[ROCR]) == (UUIDS[0], "")
    assert (second[CUDA], second[ROCR]) == ("", ROCM_UUIDS[0])
    (made,) = variables(gpus, [gpus])
    assert made[CUDA] == UUIDS[0], "HIP would read it"
    assert made[ROCR] == f"{ROCM_UUIDS[0]},{ROCM_UUIDS[1]}"
    assert made[HIP] == "0,1", "positions among the GPUs of ROCR_VISIBLE_DEVICES"


def test_warnings_of_gpus_without_words_and_of_variables_of_the_user():
    assert variables(MIXED, one_each(MIXED))[0].keys() == OWN
    gpus, user = make_nvidia_gpus(2), ((CUDA, "0"),)
    assert variables(gpus, one_each(gpus), added=user)[1][CUDA] == "0"
    overridden = planned(gpus, one_each(gpus), {}, user_variables=user)
    for plan, code, text in (
        (planned(MIXED, one_each(MIXED), {}), "devices-visible", "ranks get no CUDA_VISIBLE_DEVICES"),
        (overridden, "devices-overridden", f"{CUDA}=0 (from --env"),
    ):
        (note,) = [note for note in explain(plan) if note.code == code]
        assert note.warning
        assert note.text.startswith(text)


def test_only_variables_of_outer_ranks_are_removed_where_ranks_get_no_variables_of_devices():
    gpus = make_nvidia_gpus(2)
    env = {"OMPBIND_RANK_DEVICES": "gpu:7", "OMPBIND_NICS": "mlx5_0", CUDA: "0,1"}
    kept = variables(gpus, one_each(gpus), env, keep_env=True)
    assert kept[1] == {"OMPBIND_RANK_DEVICES": "gpu:1", "OMPBIND_NICS": None}
    assert variables(gpus, [[]], env) == [{"OMPBIND_RANK_DEVICES": None, "OMPBIND_NICS": None}]
    assert variables(gpus, [[]]) == [{}]
    spec = RunSpec(argv=("true",), run_id="run", base=env)
    (unbound,) = make_unbound_commands([1], spec, MACHINE.allowed)
    assert unbound.env[CUDA] == "0,1"
    assert "OMPBIND_RANK_DEVICES" not in unbound.env


NICS = (make_nic(0, "mlx5_0", "ib0"), make_nic(1, "mlx5_10"), make_nic(2, network="eth0"))


def test_network_interfaces_have_the_names_of_their_drivers_and_words_the_order_of_the_variable():
    made = variables(NICS, [NICS[:2], NICS[1:]])
    assert [rank["OMPBIND_NICS"] for rank in made] == ["mlx5_0,mlx5_10", "mlx5_10,eth0"]
    gpus = make_nvidia_gpus(4, with_uuids=False)
    made = variables((*NICS, *gpus), [[gpus[0], gpus[2]], [gpus[1], gpus[3]]], {CUDA: "3,2,1,0"})
    assert [(own["OMPBIND_NICS"], own[CUDA]) for own in made] == [(None, "2,0"), (None, "3,1")]


@given(ENVIRONMENTS, st.booleans(), st.sampled_from([make_nvidia_gpus, make_amd_gpus, make_intel_gpus]))
def test_ranks_get_only_inherited_words_or_uuids_and_no_word_twice(env, has_uuids, make):
    gpus = make() if make is make_intel_gpus else make(with_uuids=has_uuids)
    visible = find_visible_devices(gpus, env)
    found = visible.devices
    assert len(set(found)) == len(found)
    assert {word.device for word in visible.words} <= {gpu.name for gpu in found}
    seen = {}
    for own in variables(gpus, one_each(found), env) if found else ():
        for name in VENDOR_VARIABLES:
            seen.setdefault(name, []).extend(own[name].split(",") if name in own else [])
    for name, words in seen.items():
        assert len(words) == len(set(words)), name
        if env.get(name):
            assert set(words) <= {item.strip() for item in env[name].split(",")} | {gpu.uuid for gpu in gpus}
